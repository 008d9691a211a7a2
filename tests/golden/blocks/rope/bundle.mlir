module {
	func.func @sdsc_bundle(%pool_base_addr: !sdscbundle.input_arg<index>, %arg_0_base_addr: !sdscbundle.input_arg<index>, %arg_1_base_addr: !sdscbundle.input_arg<index>, %arg_2_base_addr: !sdscbundle.input_arg<index>, %arg_3_base_addr: !sdscbundle.input_arg<index>, %arg_4_base_addr: !sdscbundle.input_arg<index>, %arg_5_base_addr: !sdscbundle.input_arg<index>, %arg_6_base_addr: !sdscbundle.input_arg<index>, %arg_7_base_addr: !sdscbundle.input_arg<index>) {
		%pool = sdscbundle.input_arg_extract value from %pool_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_0 = sdscbundle.input_arg_extract value from %arg_0_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_1 = sdscbundle.input_arg_extract value from %arg_1_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_2 = sdscbundle.input_arg_extract value from %arg_2_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_3 = sdscbundle.input_arg_extract value from %arg_3_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_4 = sdscbundle.input_arg_extract value from %arg_4_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_5 = sdscbundle.input_arg_extract value from %arg_5_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_6 = sdscbundle.input_arg_extract value from %arg_6_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_7 = sdscbundle.input_arg_extract value from %arg_7_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_0_core_offset_1152 = arith.constant 1152 : index
		%arg_0_core_1152 = arith.addi %arg_0, %arg_0_core_offset_1152 : index
		%arg_0_core_offset_2304 = arith.constant 2304 : index
		%arg_0_core_2304 = arith.addi %arg_0, %arg_0_core_offset_2304 : index
		%arg_0_core_offset_3456 = arith.constant 3456 : index
		%arg_0_core_3456 = arith.addi %arg_0, %arg_0_core_offset_3456 : index
		%pool_offset_0 = arith.constant 0 : index
		%pool_addr_0 = arith.addi %pool, %pool_offset_0 : index
		%pool_offset_1152 = arith.constant 1152 : index
		%pool_addr_1152 = arith.addi %pool, %pool_offset_1152 : index
		%pool_offset_2304 = arith.constant 2304 : index
		%pool_addr_2304 = arith.addi %pool, %pool_offset_2304 : index
		%pool_offset_3456 = arith.constant 3456 : index
		%pool_addr_3456 = arith.addi %pool, %pool_offset_3456 : index
		%arg_2_core_offset_1152 = arith.constant 1152 : index
		%arg_2_core_1152 = arith.addi %arg_2, %arg_2_core_offset_1152 : index
		%arg_2_core_offset_2304 = arith.constant 2304 : index
		%arg_2_core_2304 = arith.addi %arg_2, %arg_2_core_offset_2304 : index
		%arg_2_core_offset_3456 = arith.constant 3456 : index
		%arg_2_core_3456 = arith.addi %arg_2, %arg_2_core_offset_3456 : index
		%pool_offset_4608 = arith.constant 4608 : index
		%pool_addr_4608 = arith.addi %pool, %pool_offset_4608 : index
		%pool_offset_5760 = arith.constant 5760 : index
		%pool_addr_5760 = arith.addi %pool, %pool_offset_5760 : index
		%pool_offset_6912 = arith.constant 6912 : index
		%pool_addr_6912 = arith.addi %pool, %pool_offset_6912 : index
		%pool_offset_8064 = arith.constant 8064 : index
		%pool_addr_8064 = arith.addi %pool, %pool_offset_8064 : index
		%arg_4_core_offset_1152 = arith.constant 1152 : index
		%arg_4_core_1152 = arith.addi %arg_4, %arg_4_core_offset_1152 : index
		%arg_4_core_offset_2304 = arith.constant 2304 : index
		%arg_4_core_2304 = arith.addi %arg_4, %arg_4_core_offset_2304 : index
		%arg_4_core_offset_3456 = arith.constant 3456 : index
		%arg_4_core_3456 = arith.addi %arg_4, %arg_4_core_offset_3456 : index
		%arg_5_core_offset_1152 = arith.constant 1152 : index
		%arg_5_core_1152 = arith.addi %arg_5, %arg_5_core_offset_1152 : index
		%arg_5_core_offset_640 = arith.constant 640 : index
		%arg_5_core_640 = arith.addi %arg_5, %arg_5_core_offset_640 : index
		%arg_5_core_offset_1792 = arith.constant 1792 : index
		%arg_5_core_1792 = arith.addi %arg_5, %arg_5_core_offset_1792 : index
		%arg_1_core_offset_640 = arith.constant 640 : index
		%arg_1_core_640 = arith.addi %arg_1, %arg_1_core_offset_640 : index
		%pool_offset_9216 = arith.constant 9216 : index
		%pool_addr_9216 = arith.addi %pool, %pool_offset_9216 : index
		%pool_offset_10368 = arith.constant 10368 : index
		%pool_addr_10368 = arith.addi %pool, %pool_offset_10368 : index
		%pool_offset_9856 = arith.constant 9856 : index
		%pool_addr_9856 = arith.addi %pool, %pool_offset_9856 : index
		%pool_offset_11008 = arith.constant 11008 : index
		%pool_addr_11008 = arith.addi %pool, %pool_offset_11008 : index
		%arg_6_core_offset_1152 = arith.constant 1152 : index
		%arg_6_core_1152 = arith.addi %arg_6, %arg_6_core_offset_1152 : index
		%arg_6_core_offset_640 = arith.constant 640 : index
		%arg_6_core_640 = arith.addi %arg_6, %arg_6_core_offset_640 : index
		%arg_6_core_offset_1792 = arith.constant 1792 : index
		%arg_6_core_1792 = arith.addi %arg_6, %arg_6_core_offset_1792 : index
		%arg_3_core_offset_640 = arith.constant 640 : index
		%arg_3_core_640 = arith.addi %arg_3, %arg_3_core_offset_640 : index
		%pool_offset_11520 = arith.constant 11520 : index
		%pool_addr_11520 = arith.addi %pool, %pool_offset_11520 : index
		%pool_offset_12672 = arith.constant 12672 : index
		%pool_addr_12672 = arith.addi %pool, %pool_offset_12672 : index
		%pool_offset_12160 = arith.constant 12160 : index
		%pool_addr_12160 = arith.addi %pool, %pool_offset_12160 : index
		%pool_offset_13312 = arith.constant 13312 : index
		%pool_addr_13312 = arith.addi %pool, %pool_offset_13312 : index
		%arg_7_core_offset_1152 = arith.constant 1152 : index
		%arg_7_core_1152 = arith.addi %arg_7, %arg_7_core_offset_1152 : index
		%arg_7_core_offset_640 = arith.constant 640 : index
		%arg_7_core_640 = arith.addi %arg_7, %arg_7_core_offset_640 : index
		%arg_7_core_offset_1792 = arith.constant 1792 : index
		%arg_7_core_1792 = arith.addi %arg_7, %arg_7_core_offset_1792 : index
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_1152, %arg_0_core_2304, %arg_0_core_3456, %arg_1, %pool_addr_0, %pool_addr_1152, %pool_addr_2304, %pool_addr_3456) {sdsc_filename="sdsc_0.json", "symbol_ids"=[-1, -2, -3, -4, -5, -6, -7, -8, -9]}
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_1152, %arg_0_core_2304, %arg_0_core_3456, %arg_2, %arg_2_core_1152, %arg_2_core_2304, %arg_2_core_3456) {sdsc_filename="sdsc_1.json", "symbol_ids"=[-10, -11, -12, -13, -14, -15, -16, -17]}
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_1152, %arg_0_core_2304, %arg_0_core_3456, %arg_2, %arg_2_core_1152, %arg_2_core_2304, %arg_2_core_3456) {sdsc_filename="sdsc_2.json", "symbol_ids"=[-18, -19, -20, -21, -22, -23, -24, -25]}
		sdscbundle.sdsc_execute (%arg_2, %arg_2_core_1152, %arg_2_core_2304, %arg_2_core_3456, %arg_3, %pool_addr_4608, %pool_addr_5760, %pool_addr_6912, %pool_addr_8064) {sdsc_filename="sdsc_3.json", "symbol_ids"=[-26, -27, -28, -29, -30, -31, -32, -33, -34]}
		sdscbundle.sdsc_execute (%pool_addr_0, %pool_addr_1152, %pool_addr_2304, %pool_addr_3456, %pool_addr_4608, %pool_addr_5760, %pool_addr_6912, %pool_addr_8064, %arg_4, %arg_4_core_1152, %arg_4_core_2304, %arg_4_core_3456) {sdsc_filename="sdsc_4.json", "symbol_ids"=[-35, -36, -37, -38, -39, -40, -41, -42, -43, -44, -45, -46]}
		sdscbundle.sdsc_execute (%arg_5, %arg_5_core_1152, %arg_5_core_640, %arg_5_core_1792, %arg_1, %arg_1_core_640, %pool_addr_9216, %pool_addr_10368, %pool_addr_9856, %pool_addr_11008) {sdsc_filename="sdsc_5.json", "symbol_ids"=[-47, -48, -49, -50, -51, -52, -53, -54, -55, -56]}
		sdscbundle.sdsc_execute (%arg_5, %arg_5_core_1152, %arg_5_core_640, %arg_5_core_1792, %arg_6, %arg_6_core_1152, %arg_6_core_640, %arg_6_core_1792) {sdsc_filename="sdsc_6.json", "symbol_ids"=[-57, -58, -59, -60, -61, -62, -63, -64]}
		sdscbundle.sdsc_execute (%arg_5, %arg_5_core_1152, %arg_5_core_640, %arg_5_core_1792, %arg_6, %arg_6_core_1152, %arg_6_core_640, %arg_6_core_1792) {sdsc_filename="sdsc_7.json", "symbol_ids"=[-65, -66, -67, -68, -69, -70, -71, -72]}
		sdscbundle.sdsc_execute (%arg_6, %arg_6_core_1152, %arg_6_core_640, %arg_6_core_1792, %arg_3, %arg_3_core_640, %pool_addr_11520, %pool_addr_12672, %pool_addr_12160, %pool_addr_13312) {sdsc_filename="sdsc_8.json", "symbol_ids"=[-73, -74, -75, -76, -77, -78, -79, -80, -81, -82]}
		sdscbundle.sdsc_execute (%pool_addr_9216, %pool_addr_10368, %pool_addr_9856, %pool_addr_11008, %pool_addr_11520, %pool_addr_12672, %pool_addr_12160, %pool_addr_13312, %arg_7, %arg_7_core_1152, %arg_7_core_640, %arg_7_core_1792) {sdsc_filename="sdsc_9.json", "symbol_ids"=[-83, -84, -85, -86, -87, -88, -89, -90, -91, -92, -93, -94]}
		return
	}
}
