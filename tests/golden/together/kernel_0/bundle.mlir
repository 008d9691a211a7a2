module {
	func.func @sdsc_bundle(%arg_0_base_addr: !sdscbundle.input_arg<index>) {
		%arg_0 = sdscbundle.input_arg_extract value from %arg_0_base_addr : !sdscbundle.input_arg<index> -> index
		%arg_0_core_offset_4096 = arith.constant 4096 : index
		%arg_0_core_4096 = arith.addi %arg_0, %arg_0_core_offset_4096 : index
		sdscbundle.sdsc_execute (%arg_0, %arg_0_core_4096) {sdsc_filename="sdsc_0.json", "symbol_ids"=[-1, -2]}
		sdscbundle.sdsc_execute () {sdsc_filename="sdsc_1.json"}
		sdscbundle.lx_left {begin=0, end=8192, cores=2}
		sdscbundle.lx_left {begin=8192, end=16384, cores=2}
		return
	}
}
