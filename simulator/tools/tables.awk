# Turns data/boards.csv and data/profiles.csv into one C header (run by the Makefile).
# The files hold no quoted fields, so splitting at commas is enough.
BEGIN { FS = "," }
FNR == 1 { file++; for (i = 1; i <= NF; i++) column[file, $i] = i; columns = NF; next }
NF == 0 { next }
NF != columns { printf "%s:%d: %d fields, %d expected\n", FILENAME, FNR, NF, columns > "/dev/stderr"; exit 1 }
function field(name) { return $(column[file, name]) }
function number(name) { return field(name) "," }
function text(name) { return "\"" field(name) "\"," }
file == 1 {
    arch = field("arch") == "ampere" ? 7 : field("arch") == "hopper" ? 9 : 10
    boards = boards "    { " text("model") text("name") text("family") arch ", " \
        number("cc_major") number("cc_minor") number("brand") \
        "0x" field("pci_device_id") "u, 0x" field("pci_subsystem_id") "u, " \
        number("memory_mib") number("sms") number("cores_per_sm") number("mem_axis") \
        number("max_mig") number("min_limit_w") number("default_limit_w") \
        number("max_limit_w") number("idle_w") number("idle_mig_w") number("peak_w") \
        number("sm_mhz") number("mem_mhz") number("idle_mhz") number("pcie_gen") \
        number("pcie_width") number("mem_bus_bits") \
        (field("scope") == "module" ? 1 : 0) ", " number("update_ms") number("window_ms") \
        number("has_average") number("gpm") number("resetless") number("fan") \
        number("slowdown_c") " },\n"
}
file == 2 {
    n = split(field("starts"), start, " ")
    list = ""
    for (i = 1; i <= n; i++) list = list start[i] ","
    profiles = profiles "    { " text("family") text("profile") number("constant") \
        number("profile_id") number("max_count") number("compute_slices") \
        number("memory_slices") n ", {" list "}, " number("memory_mib") number("sms") \
        number("copy_engines") number("decoders") number("encoders") number("jpeg") \
        number("ofa") number("media_class") " },\n"
}
END {
    print "/* Generated from data/boards.csv and data/profiles.csv. */"
    print "static const struct ws_model model_table[] = {\n" boards "};"
    print "static const struct ws_profile profile_table[] = {\n" profiles "};"
}
