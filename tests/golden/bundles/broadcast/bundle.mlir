module {
	func.func @sdsc_bundle(%pool_base_addr: !sdscbundle.input_arg<index>, %arg_0_base_addr: !sdscbundle.input_arg<index>, %arg_1_base_addr: !sdscbundle.input_arg<index>, %arg_2_base_addr: !sdscbundle.input_arg<index>, %arg_3_base_addr: !sdscbundle.input_arg<index>) {
		%pool = sdscbundle.input_arg_extract value from %pool_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_0 = sdscbundle.input_arg_extract value from %arg_0_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_1 = sdscbundle.input_arg_extract value from %arg_1_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_2 = sdscbundle.input_arg_extract value from %arg_2_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_3 = sdscbundle.input_arg_extract value from %arg_3_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_0_core_offset_4096 = arith.constant 4096 : index
		%arg_0_core_4096 = arith.addi %arg_0, %arg_0_core_offset_4096 : index
		%arg_0_core_offset_8192 = arith.constant 8192 : index
		%arg_0_core_8192 = arith.addi %arg_0, %arg_0_core_offset_8192 : index
		%arg_0_core_offset_12288 = arith.constant 12288 : index
		%arg_0_core_12288 = arith.addi %arg_0, %arg_0_core_offset_12288 : index
		%pool_offset_0 = arith.constant 0 : index
		%pool_addr_0 = arith.addi %pool, %pool_offset_0 : index
		%pool_offset_4096 = arith.constant 4096 : index
		%pool_addr_4096 = arith.addi %pool, %pool_offset_4096 : index
		%pool_offset_8192 = arith.constant 8192 : index
		%pool_addr_8192 = arith.addi %pool, %pool_offset_8192 : index
		%pool_offset_12288 = arith.constant 12288 : index
		%pool_addr_12288 = arith.addi %pool, %pool_offset_12288 : index
		%arg_2_core_offset_4096 = arith.constant 4096 : index
		%arg_2_core_4096 = arith.addi %arg_2, %arg_2_core_offset_4096 : index
		%arg_2_core_offset_8192 = arith.constant 8192 : index
		%arg_2_core_8192 = arith.addi %arg_2, %arg_2_core_offset_8192 : index
		%arg_2_core_offset_12288 = arith.constant 12288 : index
		%arg_2_core_12288 = arith.addi %arg_2, %arg_2_core_offset_12288 : index
		%arg_3_core_offset_4096 = arith.constant 4096 : index
		%arg_3_core_4096 = arith.addi %arg_3, %arg_3_core_offset_4096 : index
		%arg_3_core_offset_8192 = arith.constant 8192 : index
		%arg_3_core_8192 = arith.addi %arg_3, %arg_3_core_offset_8192 : index
		%arg_3_core_offset_12288 = arith.constant 12288 : index
		%arg_3_core_12288 = arith.addi %arg_3, %arg_3_core_offset_12288 : index
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_4096, %arg_0_core_8192, %arg_0_core_12288, %arg_1, %pool_addr_0, %pool_addr_4096, %pool_addr_8192, %pool_addr_12288) {sdsc_filename="sdsc_0.json", "symbol_ids"=[-1, -2, -3, -4, -5, -6, -7, -8, -9]}
		sdscbundle.sdsc_execute (%pool_addr_0, %pool_addr_4096, %pool_addr_8192, %pool_addr_12288, %arg_2, %arg_2_core_4096, %arg_2_core_8192, %arg_2_core_12288, %arg_3, %arg_3_core_4096, %arg_3_core_8192, %arg_3_core_12288) {sdsc_filename="sdsc_1.json", "symbol_ids"=[-10, -11, -12, -13, -14, -15, -16, -17, -18, -19, -20, -21]}
		return
	}
}
