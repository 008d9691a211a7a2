module {
	func.func @sdsc_bundle(%arg_0_base_addr: !sdscbundle.input_arg<index>, %arg_1_base_addr: !sdscbundle.input_arg<index>, %arg_2_base_addr: !sdscbundle.input_arg<index>) {
		%arg_0 = sdscbundle.input_arg_extract value from %arg_0_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_1 = sdscbundle.input_arg_extract value from %arg_1_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_2 = sdscbundle.input_arg_extract value from %arg_2_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_0_core_offset_512 = arith.constant 512 : index
		%arg_0_core_512 = arith.addi %arg_0, %arg_0_core_offset_512 : index
		%arg_0_core_offset_896 = arith.constant 896 : index
		%arg_0_core_896 = arith.addi %arg_0, %arg_0_core_offset_896 : index
		%arg_0_core_offset_1408 = arith.constant 1408 : index
		%arg_0_core_1408 = arith.addi %arg_0, %arg_0_core_offset_1408 : index
		%arg_0_core_offset_1792 = arith.constant 1792 : index
		%arg_0_core_1792 = arith.addi %arg_0, %arg_0_core_offset_1792 : index
		%arg_0_core_offset_2304 = arith.constant 2304 : index
		%arg_0_core_2304 = arith.addi %arg_0, %arg_0_core_offset_2304 : index
		%arg_1_core_offset_25600 = arith.constant 25600 : index
		%arg_1_core_25600 = arith.addi %arg_1, %arg_1_core_offset_25600 : index
		%arg_2_core_offset_512 = arith.constant 512 : index
		%arg_2_core_512 = arith.addi %arg_2, %arg_2_core_offset_512 : index
		%arg_2_core_offset_86016 = arith.constant 86016 : index
		%arg_2_core_86016 = arith.addi %arg_2, %arg_2_core_offset_86016 : index
		%arg_2_core_offset_86528 = arith.constant 86528 : index
		%arg_2_core_86528 = arith.addi %arg_2, %arg_2_core_offset_86528 : index
		%arg_2_core_offset_172032 = arith.constant 172032 : index
		%arg_2_core_172032 = arith.addi %arg_2, %arg_2_core_offset_172032 : index
		%arg_2_core_offset_172544 = arith.constant 172544 : index
		%arg_2_core_172544 = arith.addi %arg_2, %arg_2_core_offset_172544 : index
		%arg_2_core_offset_1792 = arith.constant 1792 : index
		%arg_2_core_1792 = arith.addi %arg_2, %arg_2_core_offset_1792 : index
		%arg_2_core_offset_2304 = arith.constant 2304 : index
		%arg_2_core_2304 = arith.addi %arg_2, %arg_2_core_offset_2304 : index
		%arg_2_core_offset_87808 = arith.constant 87808 : index
		%arg_2_core_87808 = arith.addi %arg_2, %arg_2_core_offset_87808 : index
		%arg_2_core_offset_88320 = arith.constant 88320 : index
		%arg_2_core_88320 = arith.addi %arg_2, %arg_2_core_offset_88320 : index
		%arg_2_core_offset_173824 = arith.constant 173824 : index
		%arg_2_core_173824 = arith.addi %arg_2, %arg_2_core_offset_173824 : index
		%arg_2_core_offset_174336 = arith.constant 174336 : index
		%arg_2_core_174336 = arith.addi %arg_2, %arg_2_core_offset_174336 : index
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_512, %arg_0_core_896, %arg_0_core_1408, %arg_0_core_1792, %arg_0_core_2304, %arg_1, %arg_1_core_25600, %arg_2, %arg_2_core_512, %arg_2_core_86016, %arg_2_core_86528, %arg_2_core_172032, %arg_2_core_172544, %arg_2_core_1792, %arg_2_core_2304, %arg_2_core_87808, %arg_2_core_88320, %arg_2_core_173824, %arg_2_core_174336) {sdsc_filename="sdsc_0.json", "symbol_ids"=[-1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12, -13, -14, -15, -16, -17, -18, -19, -20]}
		return
	}
}
