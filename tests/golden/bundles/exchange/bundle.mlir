module {
	func.func @sdsc_bundle(%arg_0_base_addr: !sdscbundle.input_arg<index>, %arg_1_base_addr: !sdscbundle.input_arg<index>) {
		%arg_0 = sdscbundle.input_arg_extract value from %arg_0_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_1 = sdscbundle.input_arg_extract value from %arg_1_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_0_core_offset_128 = arith.constant 128 : index
		%arg_0_core_128 = arith.addi %arg_0, %arg_0_core_offset_128 : index
		%arg_0_core_offset_256 = arith.constant 256 : index
		%arg_0_core_256 = arith.addi %arg_0, %arg_0_core_offset_256 : index
		%arg_0_core_offset_384 = arith.constant 384 : index
		%arg_0_core_384 = arith.addi %arg_0, %arg_0_core_offset_384 : index
		%arg_0_core_offset_512 = arith.constant 512 : index
		%arg_0_core_512 = arith.addi %arg_0, %arg_0_core_offset_512 : index
		%arg_0_core_offset_640 = arith.constant 640 : index
		%arg_0_core_640 = arith.addi %arg_0, %arg_0_core_offset_640 : index
		%arg_0_core_offset_768 = arith.constant 768 : index
		%arg_0_core_768 = arith.addi %arg_0, %arg_0_core_offset_768 : index
		%arg_1_core_offset_512 = arith.constant 512 : index
		%arg_1_core_512 = arith.addi %arg_1, %arg_1_core_offset_512 : index
		%arg_1_core_offset_896 = arith.constant 896 : index
		%arg_1_core_896 = arith.addi %arg_1, %arg_1_core_offset_896 : index
		%arg_1_core_offset_1408 = arith.constant 1408 : index
		%arg_1_core_1408 = arith.addi %arg_1, %arg_1_core_offset_1408 : index
		%arg_1_core_offset_1792 = arith.constant 1792 : index
		%arg_1_core_1792 = arith.addi %arg_1, %arg_1_core_offset_1792 : index
		%arg_1_core_offset_2304 = arith.constant 2304 : index
		%arg_1_core_2304 = arith.addi %arg_1, %arg_1_core_offset_2304 : index
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_128, %arg_0_core_256, %arg_0_core_384, %arg_0_core_512, %arg_0_core_640, %arg_0_core_768) {sdsc_filename="sdsc_0.json", "symbol_ids"=[-1, -2, -3, -4, -5, -6, -7]}
		sdscbundle.sdsc_execute () {sdsc_filename="sdsc_1.json"}
		sdscbundle.sdsc_execute (%arg_1, %arg_1_core_512, %arg_1_core_896, %arg_1_core_1408, %arg_1_core_1792, %arg_1_core_2304) {sdsc_filename="sdsc_2.json", "symbol_ids"=[-8, -9, -10, -11, -12, -13]}
		return
	}
}
