module {
	func.func @sdsc_bundle(%arg_0_base_addr: !sdscbundle.input_arg<index>, %arg_1_base_addr: !sdscbundle.input_arg<index>) {
		%arg_0 = sdscbundle.input_arg_extract value from %arg_0_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_1 = sdscbundle.input_arg_extract value from %arg_1_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_0_core_offset_3200 = arith.constant 3200 : index
		%arg_0_core_3200 = arith.addi %arg_0, %arg_0_core_offset_3200 : index
		%arg_0_core_offset_6400 = arith.constant 6400 : index
		%arg_0_core_6400 = arith.addi %arg_0, %arg_0_core_offset_6400 : index
		%arg_0_core_offset_9600 = arith.constant 9600 : index
		%arg_0_core_9600 = arith.addi %arg_0, %arg_0_core_offset_9600 : index
		%arg_1_core_offset_3200 = arith.constant 3200 : index
		%arg_1_core_3200 = arith.addi %arg_1, %arg_1_core_offset_3200 : index
		%arg_1_core_offset_6400 = arith.constant 6400 : index
		%arg_1_core_6400 = arith.addi %arg_1, %arg_1_core_offset_6400 : index
		%arg_1_core_offset_9600 = arith.constant 9600 : index
		%arg_1_core_9600 = arith.addi %arg_1, %arg_1_core_offset_9600 : index
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_3200, %arg_0_core_6400, %arg_0_core_9600, %arg_1, %arg_1_core_3200, %arg_1_core_6400, %arg_1_core_9600) {sdsc_filename="sdsc_0.json", "symbol_ids"=[-1, -2, -3, -4, -5, -6, -7, -8]}
		return
	}
}
