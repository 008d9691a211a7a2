module {
	func.func @sdsc_bundle() {
		sdscbundle.lx_found {begin=0, end=8192, cores=2}
		sdscbundle.lx_found {begin=8192, end=16384, cores=2}
		sdscbundle.sdsc_execute () {sdsc_filename="sdsc_0.json"}
		sdscbundle.lx_left {begin=0, end=8192, cores=2}
		sdscbundle.lx_left {begin=16384, end=24576, cores=2}
		return
	}
}
