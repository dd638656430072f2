# cmake -DFOLDER=src/report -DOUT=page_text.cc -P embed_page.cmake
# Writes page.html, with page.css, page.js and the parts of the script that have files of their own inside it, as a
# string literal in a C++ file.
file(READ ${FOLDER}/page.html page)
foreach(part css js)
  file(READ ${FOLDER}/page.${part} text)
  string(REPLACE "@PAGE_${part}@" "${text}" page "${page}")
endforeach()
file(READ ${FOLDER}/arena.js text)
string(REPLACE "// @PAGE_arena@\n" "${text}" page "${page}")
if(page MATCHES "\\)page\"")
  message(FATAL_ERROR "the page contains )page\", which ends the literal it is embedded in")
endif()
file(WRITE ${OUT} "#include \"report/page_text.h\"\n\nnamespace reprise::detail {\n\n"
  "std::string_view page_text() {\n  return R\"page(${page})page\";\n}\n\n}  // namespace reprise::detail\n")
