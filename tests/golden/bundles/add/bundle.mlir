module {
	func.func @sdsc_bundle(%arg_0_base_addr: !sdscbundle.input_arg<index>, %arg_1_base_addr: !sdscbundle.input_arg<index>, %arg_2_base_addr: !sdscbundle.input_arg<index>) {
		%arg_0 = sdscbundle.input_arg_extract value from %arg_0_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_1 = sdscbundle.input_arg_extract value from %arg_1_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_2 = sdscbundle.input_arg_extract value from %arg_2_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_0_core_offset_4352 = arith.constant 4352 : index
		%arg_0_core_4352 = arith.addi %arg_0, %arg_0_core_offset_4352 : index
		%arg_0_core_offset_8704 = arith.constant 8704 : index
		%arg_0_core_8704 = arith.addi %arg_0, %arg_0_core_offset_8704 : index
		%arg_0_core_offset_25600 = arith.constant 25600 : index
		%arg_0_core_25600 = arith.addi %arg_0, %arg_0_core_offset_25600 : index
		%arg_0_core_offset_29952 = arith.constant 29952 : index
		%arg_0_core_29952 = arith.addi %arg_0, %arg_0_core_offset_29952 : index
		%arg_0_core_offset_34304 = arith.constant 34304 : index
		%arg_0_core_34304 = arith.addi %arg_0, %arg_0_core_offset_34304 : index
		%arg_1_core_offset_4352 = arith.constant 4352 : index
		%arg_1_core_4352 = arith.addi %arg_1, %arg_1_core_offset_4352 : index
		%arg_1_core_offset_8704 = arith.constant 8704 : index
		%arg_1_core_8704 = arith.addi %arg_1, %arg_1_core_offset_8704 : index
		%arg_1_core_offset_25600 = arith.constant 25600 : index
		%arg_1_core_25600 = arith.addi %arg_1, %arg_1_core_offset_25600 : index
		%arg_1_core_offset_29952 = arith.constant 29952 : index
		%arg_1_core_29952 = arith.addi %arg_1, %arg_1_core_offset_29952 : index
		%arg_1_core_offset_34304 = arith.constant 34304 : index
		%arg_1_core_34304 = arith.addi %arg_1, %arg_1_core_offset_34304 : index
		%arg_2_core_offset_4352 = arith.constant 4352 : index
		%arg_2_core_4352 = arith.addi %arg_2, %arg_2_core_offset_4352 : index
		%arg_2_core_offset_8704 = arith.constant 8704 : index
		%arg_2_core_8704 = arith.addi %arg_2, %arg_2_core_offset_8704 : index
		%arg_2_core_offset_25600 = arith.constant 25600 : index
		%arg_2_core_25600 = arith.addi %arg_2, %arg_2_core_offset_25600 : index
		%arg_2_core_offset_29952 = arith.constant 29952 : index
		%arg_2_core_29952 = arith.addi %arg_2, %arg_2_core_offset_29952 : index
		%arg_2_core_offset_34304 = arith.constant 34304 : index
		%arg_2_core_34304 = arith.addi %arg_2, %arg_2_core_offset_34304 : index
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_4352, %arg_0_core_8704, %arg_0_core_25600, %arg_0_core_29952, %arg_0_core_34304, %arg_1, %arg_1_core_4352, %arg_1_core_8704, %arg_1_core_25600, %arg_1_core_29952, %arg_1_core_34304, %arg_2, %arg_2_core_4352, %arg_2_core_8704, %arg_2_core_25600, %arg_2_core_29952, %arg_2_core_34304) {sdsc_filename="sdsc_0.json", "symbol_ids"=[-1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12, -13, -14, -15, -16, -17, -18]}
		return
	}
}
