# What `make install` puts where: the command, both libraries, headers, and what pkg-config and find_package(levin) read.
# Both find the rest relative to themselves, so PREFIX and DESTDIR need not be known here.
include(CMakePackageConfigHelpers)

set(levin_package ${CMAKE_INSTALL_LIBDIR}/cmake/levin)
install(TARGETS levin)
install(TARGETS liblevin EXPORT levin-shared)
install(TARGETS liblevin_static EXPORT levin-static)
install(DIRECTORY include/levin TYPE INCLUDE)

# Two lists of targets: programs that link the shared library need none of the packages that levin itself is built from.
install(EXPORT levin-shared NAMESPACE levin:: FILE levinTargets.cmake DESTINATION ${levin_package})
install(EXPORT levin-static NAMESPACE levin:: FILE levinStaticTargets.cmake DESTINATION ${levin_package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/levinConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/levinConfig.cmake ${CMAKE_BINARY_DIR}/levinConfigVersion.cmake DESTINATION ${levin_package})

# <prefix>/lib/pkgconfig -> <prefix>
file(RELATIVE_PATH levin_up ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" levin_up ${levin_up})
configure_file(cmake/levin.pc.in levin.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/levin.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The manual page is what `levin help` prints.
if(NOT LEVIN_SANITIZE)
    add_custom_command(OUTPUT levin.1 DEPENDS levin tools/man-page
        COMMAND ${CMAKE_SOURCE_DIR}/tools/man-page $<TARGET_FILE:levin> levin.1)
    add_custom_target(man ALL DEPENDS levin.1)
    install(FILES ${CMAKE_BINARY_DIR}/levin.1 TYPE MAN RENAME man1/levin.1)
    # Where both shells look for the completion of a command.
    foreach(shell bash zsh)
        add_custom_command(OUTPUT levin.${shell} DEPENDS levin
            COMMAND $<TARGET_FILE:levin> completion ${shell} > levin.${shell})
        add_custom_target(completion-${shell} ALL DEPENDS levin.${shell})
    endforeach()
    install(FILES ${CMAKE_BINARY_DIR}/levin.bash RENAME levin
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${CMAKE_BINARY_DIR}/levin.zsh RENAME _levin DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endif()
install(FILES README.md LICENSE TYPE DOC)
install(DIRECTORY docs TYPE DOC)
install(DIRECTORY examples TYPE DOC PATTERN CMakeLists.txt EXCLUDE)

# `make deb`: a package for the Debian that it is built on.
set(CPACK_PACKAGE_NAME levin)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_CONTACT "levin's developers <levin@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "multi-GPU, multi-node training of neural networks")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libcairo2, fonts-dejavu-core, liblapacke")
set(CPACK_STRIP_FILES ON)
include(CPack)
