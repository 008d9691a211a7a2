module {
	func.func @sdsc_bundle(%arg_0_base_addr: !sdscbundle.input_arg<index>, %arg_1_base_addr: !sdscbundle.input_arg<index>, %arg_2_base_addr: !sdscbundle.input_arg<index>, %arg_3_base_addr: !sdscbundle.input_arg<index>, %arg_4_base_addr: !sdscbundle.input_arg<index>, %arg_5_base_addr: !sdscbundle.input_arg<index>) {
		%arg_0 = sdscbundle.input_arg_extract value from %arg_0_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_1 = sdscbundle.input_arg_extract value from %arg_1_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_2 = sdscbundle.input_arg_extract value from %arg_2_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_3 = sdscbundle.input_arg_extract value from %arg_3_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_4 = sdscbundle.input_arg_extract value from %arg_4_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_5 = sdscbundle.input_arg_extract value from %arg_5_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_0_core_offset_128 = arith.constant 128 : index
		%arg_0_core_128 = arith.addi %arg_0, %arg_0_core_offset_128 : index
		%arg_0_core_offset_256 = arith.constant 256 : index
		%arg_0_core_256 = arith.addi %arg_0, %arg_0_core_offset_256 : index
		%arg_3_core_offset_128 = arith.constant 128 : index
		%arg_3_core_128 = arith.addi %arg_3, %arg_3_core_offset_128 : index
		%arg_3_core_offset_256 = arith.constant 256 : index
		%arg_3_core_256 = arith.addi %arg_3, %arg_3_core_offset_256 : index
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_128, %arg_0_core_256) {sdsc_filename="sdsc_0.json", "symbol_ids"=[-1, -2, -3]}
		sdscbundle.sdsc_execute () {sdsc_filename="sdsc_1.json"}
		sdscbundle.sdsc_execute (%arg_4) {sdsc_filename="sdsc_2.json", "symbol_ids"=[-4]}
		sdscbundle.sdsc_execute (%arg_5) {sdsc_filename="sdsc_3.json", "symbol_ids"=[-5]}
		sdscbundle.sdsc_execute () {sdsc_filename="sdsc_4.json"}
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_128, %arg_0_core_256) {sdsc_filename="sdsc_5.json", "symbol_ids"=[-6, -7, -8]}
		sdscbundle.sdsc_execute (%arg_1) {sdsc_filename="sdsc_6.json", "symbol_ids"=[-9]}
		sdscbundle.sdsc_execute (%arg_2, %arg_3, %arg_3_core_128, %arg_3_core_256) {sdsc_filename="sdsc_7.json", "symbol_ids"=[-10, -11, -12, -13]}
		return
	}
}
