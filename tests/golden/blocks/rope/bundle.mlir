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
		%arg_0_core_offset_384 = arith.constant 384 : index
		%arg_0_core_384 = arith.addi %arg_0, %arg_0_core_offset_384 : index
		%arg_0_core_offset_768 = arith.constant 768 : index
		%arg_0_core_768 = arith.addi %arg_0, %arg_0_core_offset_768 : index
		%arg_1_core_offset_384 = arith.constant 384 : index
		%arg_1_core_384 = arith.addi %arg_1, %arg_1_core_offset_384 : index
		%arg_1_core_offset_768 = arith.constant 768 : index
		%arg_1_core_768 = arith.addi %arg_1, %arg_1_core_offset_768 : index
		%arg_0_core_offset_1152 = arith.constant 1152 : index
		%arg_0_core_1152 = arith.addi %arg_0, %arg_0_core_offset_1152 : index
		%arg_0_core_offset_2304 = arith.constant 2304 : index
		%arg_0_core_2304 = arith.addi %arg_0, %arg_0_core_offset_2304 : index
		%arg_0_core_offset_3456 = arith.constant 3456 : index
		%arg_0_core_3456 = arith.addi %arg_0, %arg_0_core_offset_3456 : index
		%arg_2_core_offset_1152 = arith.constant 1152 : index
		%arg_2_core_1152 = arith.addi %arg_2, %arg_2_core_offset_1152 : index
		%arg_2_core_offset_2304 = arith.constant 2304 : index
		%arg_2_core_2304 = arith.addi %arg_2, %arg_2_core_offset_2304 : index
		%arg_2_core_offset_3456 = arith.constant 3456 : index
		%arg_2_core_3456 = arith.addi %arg_2, %arg_2_core_offset_3456 : index
		%arg_2_core_offset_384 = arith.constant 384 : index
		%arg_2_core_384 = arith.addi %arg_2, %arg_2_core_offset_384 : index
		%arg_2_core_offset_768 = arith.constant 768 : index
		%arg_2_core_768 = arith.addi %arg_2, %arg_2_core_offset_768 : index
		%arg_3_core_offset_384 = arith.constant 384 : index
		%arg_3_core_384 = arith.addi %arg_3, %arg_3_core_offset_384 : index
		%arg_3_core_offset_768 = arith.constant 768 : index
		%arg_3_core_768 = arith.addi %arg_3, %arg_3_core_offset_768 : index
		%arg_4_core_offset_384 = arith.constant 384 : index
		%arg_4_core_384 = arith.addi %arg_4, %arg_4_core_offset_384 : index
		%arg_4_core_offset_768 = arith.constant 768 : index
		%arg_4_core_768 = arith.addi %arg_4, %arg_4_core_offset_768 : index
		%arg_5_core_offset_384 = arith.constant 384 : index
		%arg_5_core_384 = arith.addi %arg_5, %arg_5_core_offset_384 : index
		%arg_5_core_offset_768 = arith.constant 768 : index
		%arg_5_core_768 = arith.addi %arg_5, %arg_5_core_offset_768 : index
		%arg_6_core_offset_384 = arith.constant 384 : index
		%arg_6_core_384 = arith.addi %arg_6, %arg_6_core_offset_384 : index
		%arg_6_core_offset_768 = arith.constant 768 : index
		%arg_6_core_768 = arith.addi %arg_6, %arg_6_core_offset_768 : index
		%arg_7_core_offset_384 = arith.constant 384 : index
		%arg_7_core_384 = arith.addi %arg_7, %arg_7_core_offset_384 : index
		%arg_7_core_offset_768 = arith.constant 768 : index
		%arg_7_core_768 = arith.addi %arg_7, %arg_7_core_offset_768 : index
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_384, %arg_0_core_768, %arg_1, %arg_1_core_384, %arg_1_core_768) {sdsc_filename="sdsc_0.json", "symbol_ids"=[-1, -2, -3, -4, -5, -6]}
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_1152, %arg_0_core_2304, %arg_0_core_3456, %arg_2, %arg_2_core_1152, %arg_2_core_2304, %arg_2_core_3456) {sdsc_filename="sdsc_1.json", "symbol_ids"=[-7, -8, -9, -10, -11, -12, -13, -14]}
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_1152, %arg_0_core_2304, %arg_0_core_3456, %arg_2, %arg_2_core_1152, %arg_2_core_2304, %arg_2_core_3456) {sdsc_filename="sdsc_2.json", "symbol_ids"=[-15, -16, -17, -18, -19, -20, -21, -22]}
		sdscbundle.sdsc_execute (%arg_2, %arg_2_core_384, %arg_2_core_768, %arg_3, %arg_3_core_384, %arg_3_core_768) {sdsc_filename="sdsc_3.json", "symbol_ids"=[-23, -24, -25, -26, -27, -28]}
		sdscbundle.sdsc_execute (%arg_4, %arg_4_core_384, %arg_4_core_768) {sdsc_filename="sdsc_4.json", "symbol_ids"=[-29, -30, -31]}
		sdscbundle.sdsc_execute (%arg_5, %arg_5_core_384, %arg_5_core_768, %arg_1, %arg_1_core_384, %arg_1_core_768) {sdsc_filename="sdsc_5.json", "symbol_ids"=[-32, -33, -34, -35, -36, -37]}
		sdscbundle.sdsc_execute (%arg_5, %arg_5_core_384, %arg_5_core_768, %arg_6, %arg_6_core_384, %arg_6_core_768) {sdsc_filename="sdsc_6.json", "symbol_ids"=[-38, -39, -40, -41, -42, -43]}
		sdscbundle.sdsc_execute (%arg_5, %arg_5_core_384, %arg_5_core_768, %arg_6, %arg_6_core_384, %arg_6_core_768) {sdsc_filename="sdsc_7.json", "symbol_ids"=[-44, -45, -46, -47, -48, -49]}
		sdscbundle.sdsc_execute (%arg_6, %arg_6_core_384, %arg_6_core_768, %arg_3, %arg_3_core_384, %arg_3_core_768) {sdsc_filename="sdsc_8.json", "symbol_ids"=[-50, -51, -52, -53, -54, -55]}
		sdscbundle.sdsc_execute (%arg_7, %arg_7_core_384, %arg_7_core_768) {sdsc_filename="sdsc_9.json", "symbol_ids"=[-56, -57, -58]}
		return
	}
}
