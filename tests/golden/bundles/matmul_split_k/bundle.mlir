module {
	func.func @sdsc_bundle(%arg_0_base_addr: !sdscbundle.input_arg<index>, %arg_1_base_addr: !sdscbundle.input_arg<index>, %arg_2_base_addr: !sdscbundle.input_arg<index>) {
		%arg_0 = sdscbundle.input_arg_extract value from %arg_0_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_1 = sdscbundle.input_arg_extract value from %arg_1_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_2 = sdscbundle.input_arg_extract value from %arg_2_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_0_core_offset_16384 = arith.constant 16384 : index
		%arg_0_core_16384 = arith.addi %arg_0, %arg_0_core_offset_16384 : index
		%arg_0_core_offset_5504 = arith.constant 5504 : index
		%arg_0_core_5504 = arith.addi %arg_0, %arg_0_core_offset_5504 : index
		%arg_0_core_offset_21888 = arith.constant 21888 : index
		%arg_0_core_21888 = arith.addi %arg_0, %arg_0_core_offset_21888 : index
		%arg_0_core_offset_11008 = arith.constant 11008 : index
		%arg_0_core_11008 = arith.addi %arg_0, %arg_0_core_offset_11008 : index
		%arg_0_core_offset_27392 = arith.constant 27392 : index
		%arg_0_core_27392 = arith.addi %arg_0, %arg_0_core_offset_27392 : index
		%arg_1_core_offset_8192 = arith.constant 8192 : index
		%arg_1_core_8192 = arith.addi %arg_1, %arg_1_core_offset_8192 : index
		%arg_1_core_offset_25600 = arith.constant 25600 : index
		%arg_1_core_25600 = arith.addi %arg_1, %arg_1_core_offset_25600 : index
		%arg_1_core_offset_33792 = arith.constant 33792 : index
		%arg_1_core_33792 = arith.addi %arg_1, %arg_1_core_offset_33792 : index
		%arg_2_core_offset_5504 = arith.constant 5504 : index
		%arg_2_core_5504 = arith.addi %arg_2, %arg_2_core_offset_5504 : index
		%arg_2_core_offset_11008 = arith.constant 11008 : index
		%arg_2_core_11008 = arith.addi %arg_2, %arg_2_core_offset_11008 : index
		%arg_2_core_offset_32768 = arith.constant 32768 : index
		%arg_2_core_32768 = arith.addi %arg_2, %arg_2_core_offset_32768 : index
		%arg_2_core_offset_38272 = arith.constant 38272 : index
		%arg_2_core_38272 = arith.addi %arg_2, %arg_2_core_offset_38272 : index
		%arg_2_core_offset_43776 = arith.constant 43776 : index
		%arg_2_core_43776 = arith.addi %arg_2, %arg_2_core_offset_43776 : index
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_16384, %arg_0_core_5504, %arg_0_core_21888, %arg_0_core_11008, %arg_0_core_27392, %arg_1, %arg_1_core_8192, %arg_1_core_25600, %arg_1_core_33792, %arg_2, %arg_2_core_5504, %arg_2_core_11008, %arg_2_core_32768, %arg_2_core_38272, %arg_2_core_43776) {sdsc_filename="sdsc_0.json", "symbol_ids"=[-1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12, -13, -14, -15, -16]}
		return
	}
}
