module {
	func.func @sdsc_bundle(%arg_0_base_addr: !sdscbundle.input_arg<index>, %arg_1_base_addr: !sdscbundle.input_arg<index>, %arg_2_base_addr: !sdscbundle.input_arg<index>, %arg_3_base_addr: !sdscbundle.input_arg<index>, %arg_4_base_addr: !sdscbundle.input_arg<index>, %arg_5_base_addr: !sdscbundle.input_arg<index>, %arg_6_base_addr: !sdscbundle.input_arg<index>, %arg_7_base_addr: !sdscbundle.input_arg<index>) {
		%arg_0 = sdscbundle.input_arg_extract value from %arg_0_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_1 = sdscbundle.input_arg_extract value from %arg_1_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_2 = sdscbundle.input_arg_extract value from %arg_2_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_3 = sdscbundle.input_arg_extract value from %arg_3_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_4 = sdscbundle.input_arg_extract value from %arg_4_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_5 = sdscbundle.input_arg_extract value from %arg_5_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_6 = sdscbundle.input_arg_extract value from %arg_6_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_7 = sdscbundle.input_arg_extract value from %arg_7_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_0_core_offset_2304 = arith.constant 2304 : index
		%arg_0_core_2304 = arith.addi %arg_0, %arg_0_core_offset_2304 : index
		%arg_0_core_offset_1152 = arith.constant 1152 : index
		%arg_0_core_1152 = arith.addi %arg_0, %arg_0_core_offset_1152 : index
		%arg_0_core_offset_3456 = arith.constant 3456 : index
		%arg_0_core_3456 = arith.addi %arg_0, %arg_0_core_offset_3456 : index
		%arg_1_core_offset_1152 = arith.constant 1152 : index
		%arg_1_core_1152 = arith.addi %arg_1, %arg_1_core_offset_1152 : index
		%arg_2_core_offset_1152 = arith.constant 1152 : index
		%arg_2_core_1152 = arith.addi %arg_2, %arg_2_core_offset_1152 : index
		%arg_3_core_offset_2304 = arith.constant 2304 : index
		%arg_3_core_2304 = arith.addi %arg_3, %arg_3_core_offset_2304 : index
		%arg_3_core_offset_1152 = arith.constant 1152 : index
		%arg_3_core_1152 = arith.addi %arg_3, %arg_3_core_offset_1152 : index
		%arg_3_core_offset_3456 = arith.constant 3456 : index
		%arg_3_core_3456 = arith.addi %arg_3, %arg_3_core_offset_3456 : index
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_2304, %arg_0_core_1152, %arg_0_core_3456, %arg_1, %arg_1_core_1152) {sdsc_filename="sdsc_0.json", "symbol_ids"=[-1, -2, -3, -4, -5, -6]}
		sdscbundle.sdsc_execute (%arg_4, %arg_5) {sdsc_filename="sdsc_1.json", "symbol_ids"=[-7, -8]}
		sdscbundle.sdsc_execute (%arg_6) {sdsc_filename="sdsc_2.json", "symbol_ids"=[-9]}
		sdscbundle.sdsc_execute () {sdsc_filename="sdsc_3.json"}
		sdscbundle.sdsc_execute () {sdsc_filename="sdsc_4.json"}
		sdscbundle.sdsc_execute (%arg_7) {sdsc_filename="sdsc_5.json", "symbol_ids"=[-10]}
		sdscbundle.sdsc_execute () {sdsc_filename="sdsc_6.json"}
		sdscbundle.sdsc_execute () {sdsc_filename="sdsc_7.json"}
		sdscbundle.sdsc_execute (%arg_2, %arg_2_core_1152) {sdsc_filename="sdsc_8.json", "symbol_ids"=[-11, -12]}
		sdscbundle.sdsc_execute (%arg_3, %arg_3_core_2304, %arg_3_core_1152, %arg_3_core_3456) {sdsc_filename="sdsc_9.json", "symbol_ids"=[-13, -14, -15, -16]}
		return
	}
}
