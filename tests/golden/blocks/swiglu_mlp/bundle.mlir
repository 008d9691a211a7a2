module {
	func.func @sdsc_bundle(%pool_base_addr: !sdscbundle.input_arg<index>, %arg_0_base_addr: !sdscbundle.input_arg<index>, %arg_1_base_addr: !sdscbundle.input_arg<index>, %arg_2_base_addr: !sdscbundle.input_arg<index>, %arg_3_base_addr: !sdscbundle.input_arg<index>, %arg_4_base_addr: !sdscbundle.input_arg<index>) {
		%pool = sdscbundle.input_arg_extract value from %pool_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_0 = sdscbundle.input_arg_extract value from %arg_0_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_1 = sdscbundle.input_arg_extract value from %arg_1_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_2 = sdscbundle.input_arg_extract value from %arg_2_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_3 = sdscbundle.input_arg_extract value from %arg_3_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_4 = sdscbundle.input_arg_extract value from %arg_4_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_1_core_offset_8192 = arith.constant 8192 : index
		%arg_1_core_8192 = arith.addi %arg_1, %arg_1_core_offset_8192 : index
		%arg_1_core_offset_16384 = arith.constant 16384 : index
		%arg_1_core_16384 = arith.addi %arg_1, %arg_1_core_offset_16384 : index
		%pool_offset_0 = arith.constant 0 : index
		%pool_addr_0 = arith.addi %pool, %pool_offset_0 : index
		%pool_offset_384 = arith.constant 384 : index
		%pool_addr_384 = arith.addi %pool, %pool_offset_384 : index
		%pool_offset_768 = arith.constant 768 : index
		%pool_addr_768 = arith.addi %pool, %pool_offset_768 : index
		%arg_2_core_offset_8192 = arith.constant 8192 : index
		%arg_2_core_8192 = arith.addi %arg_2, %arg_2_core_offset_8192 : index
		%arg_2_core_offset_16384 = arith.constant 16384 : index
		%arg_2_core_16384 = arith.addi %arg_2, %arg_2_core_offset_16384 : index
		%pool_offset_1152 = arith.constant 1152 : index
		%pool_addr_1152 = arith.addi %pool, %pool_offset_1152 : index
		%pool_offset_1536 = arith.constant 1536 : index
		%pool_addr_1536 = arith.addi %pool, %pool_offset_1536 : index
		%pool_offset_1920 = arith.constant 1920 : index
		%pool_addr_1920 = arith.addi %pool, %pool_offset_1920 : index
		%pool_offset_2304 = arith.constant 2304 : index
		%pool_addr_2304 = arith.addi %pool, %pool_offset_2304 : index
		%pool_offset_2688 = arith.constant 2688 : index
		%pool_addr_2688 = arith.addi %pool, %pool_offset_2688 : index
		%pool_offset_3072 = arith.constant 3072 : index
		%pool_addr_3072 = arith.addi %pool, %pool_offset_3072 : index
		%pool_offset_2432 = arith.constant 2432 : index
		%pool_addr_2432 = arith.addi %pool, %pool_offset_2432 : index
		%pool_offset_2560 = arith.constant 2560 : index
		%pool_addr_2560 = arith.addi %pool, %pool_offset_2560 : index
		%arg_4_core_offset_128 = arith.constant 128 : index
		%arg_4_core_128 = arith.addi %arg_4, %arg_4_core_offset_128 : index
		%arg_4_core_offset_256 = arith.constant 256 : index
		%arg_4_core_256 = arith.addi %arg_4, %arg_4_core_offset_256 : index
		sdscbundle.sdsc_execute (%arg_0, %arg_1, %arg_1_core_8192, %arg_1_core_16384, %pool_addr_0, %pool_addr_384, %pool_addr_768) {sdsc_filename="sdsc_0.json", "symbol_ids"=[-1, -2, -3, -4, -5, -6, -7]}
		sdscbundle.sdsc_execute (%arg_0, %arg_2, %arg_2_core_8192, %arg_2_core_16384, %pool_addr_1152, %pool_addr_1536, %pool_addr_1920) {sdsc_filename="sdsc_1.json", "symbol_ids"=[-8, -9, -10, -11, -12, -13, -14]}
		sdscbundle.sdsc_execute (%pool_addr_0, %pool_addr_384, %pool_addr_768) {sdsc_filename="sdsc_2.json", "symbol_ids"=[-15, -16, -17]}
		sdscbundle.sdsc_execute (%pool_addr_0, %pool_addr_384, %pool_addr_768, %pool_addr_1152, %pool_addr_1536, %pool_addr_1920, %pool_addr_2304, %pool_addr_2688, %pool_addr_3072) {sdsc_filename="sdsc_3.json", "symbol_ids"=[-18, -19, -20, -21, -22, -23, -24, -25, -26]}
		sdscbundle.sdsc_execute (%pool_addr_2304, %pool_addr_2432, %pool_addr_2560, %arg_3, %arg_4, %arg_4_core_128, %arg_4_core_256) {sdsc_filename="sdsc_4.json", "symbol_ids"=[-27, -28, -29, -30, -31, -32, -33]}
		return
	}
}
