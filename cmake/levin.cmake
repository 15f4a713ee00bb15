# Flags of every levin target, and the two functions the folders use.

# The warnings were chosen for the compilers that levin is developed with: newer ones find more, and must not stop a user.
option(LEVIN_WERROR "warnings are errors (.ci/run)" OFF)
set(LEVIN_WARNINGS -Wall -Wextra -Wshadow)
if(LEVIN_WERROR)
    list(APPEND LEVIN_WARNINGS -Werror)
endif()

add_library(levin_flags INTERFACE)
target_compile_definitions(levin_flags INTERFACE _GNU_SOURCE)
target_include_directories(levin_flags INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
target_compile_options(levin_flags INTERFACE
    ${LEVIN_WARNINGS} -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef
    -Wcast-qual -Wdouble-promotion -Wformat=2
    -ffp-contract=off # reproducibility: what is written as two operations is rounded twice, on every machine
    -fno-math-errno -fno-trapping-math)
if(LEVIN_SANITIZE)
    # Under sanitizers gcc's warnings about flow (maybe-uninitialized, format-truncation) see the inserted code: no errors here.
    target_compile_options(levin_flags INTERFACE
        -fsanitize=${LEVIN_SANITIZE} -fno-omit-frame-pointer -Wno-error -Wno-format-truncation -Wno-maybe-uninitialized)
    target_link_options(levin_flags INTERFACE -fsanitize=${LEVIN_SANITIZE})
endif()

if(LEVIN_LIBFUZZER)
    target_compile_options(levin_flags INTERFACE -fsanitize=fuzzer-no-link -w) # the warnings are chosen for gcc
endif()

# levin_folder(name SOURCES a.c b.c DEPS core tensor LIBS PkgConfig::yaml)
# A static library: the program takes what it needs of each, liblevin takes all objects, but none of a folder marked PROGRAM.
function(levin_folder name)
    cmake_parse_arguments(ARG "PROGRAM" "" "SOURCES;DEPS;LIBS" ${ARGN})
    add_library(levin_${name} STATIC ${ARG_SOURCES})
    if(NOT ARG_PROGRAM)
        set_property(GLOBAL APPEND PROPERTY LEVIN_FOLDERS levin_${name})
    endif()
    set_property(GLOBAL APPEND PROPERTY LEVIN_LIBS ${ARG_LIBS})
    target_link_libraries(levin_${name} PUBLIC levin_flags ${ARG_LIBS} Threads::Threads m)
    foreach(dep ${ARG_DEPS})
        target_link_libraries(levin_${name} PUBLIC levin_${dep})
    endforeach()
endfunction()

# levin_library(): build/liblevin.so and build/liblevin.a from all folders. Everything is compiled with hidden visibility, so
# the .so exports what LVN_API marks and nothing else (the test check_symbols). Libraries of the system are private to both.
function(levin_library)
    get_property(folders GLOBAL PROPERTY LEVIN_FOLDERS)
    get_property(libs GLOBAL PROPERTY LEVIN_LIBS)
    list(REMOVE_DUPLICATES libs)
    list(TRANSFORM folders REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
    add_library(liblevin SHARED ${objects})
    add_library(liblevin_static STATIC ${objects})
    target_link_libraries(liblevin PRIVATE ${libs} Threads::Threads m)
    target_link_libraries(liblevin INTERFACE m) # programs call what the headers use: sqrt, fmax
    target_link_libraries(liblevin_static PRIVATE ${libs} Threads::Threads m)
    set_target_properties(liblevin PROPERTIES EXPORT_NAME levin VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
    set_target_properties(liblevin_static PROPERTIES EXPORT_NAME static)
    foreach(target liblevin liblevin_static)
        target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
        set_target_properties(${target} PROPERTIES OUTPUT_NAME levin LINKER_LANGUAGE C
            LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
    endforeach()
    if(LEVIN_SANITIZE)
        target_link_options(liblevin PRIVATE -fsanitize=${LEVIN_SANITIZE})
    else() # the sanitizers' own symbols come with the program
        target_link_options(liblevin PRIVATE -Wl,--no-undefined)
    endif()
endfunction()

# levin_part(name): one of the tests of which .ci/run runs a quarter under ASan, by turns (ASAN_PART of tools/run-tests)
function(levin_part name)
    get_property(count GLOBAL PROPERTY LEVIN_PARTED)
    if(NOT count)
        set(count 0)
    endif()
    math(EXPR part "${count} % 4")
    math(EXPR count "${count} + 1")
    set_property(GLOBAL PROPERTY LEVIN_PARTED ${count})
    set_property(TEST ${name} APPEND PROPERTY LABELS part${part})
endfunction()

# levin_targets(folder out): all targets of a folder and of those below it that are built by default
function(levin_targets folder out)
    get_property(found DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
    get_property(below DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
    set(kept)
    foreach(target ${found})
        get_target_property(excluded ${target} EXCLUDE_FROM_ALL)
        get_target_property(type ${target} TYPE)
        if(NOT excluded AND NOT type STREQUAL INTERFACE_LIBRARY AND NOT type STREQUAL UTILITY)
            list(APPEND kept ${target})
        endif()
    endforeach()
    foreach(sub ${below})
        levin_targets(${sub} more)
        list(APPEND kept ${more})
    endforeach()
    set(${out} ${kept} PARENT_SCOPE)
endfunction()

# levin_test_load(name SERIAL WAITS PROCESSORS). SERIAL: the test asserts times while it computes, so it runs alone. WAITS: it
# asserts times and hardly computes, so two such tests at a time run beside the others, and these tests, two after two as they
# are, begin first. PROCESSORS (1): cores that the test needs for itself; four at most, or nothing else would run
# beside it on the machines that most have. A test that needs no time-outs to hold takes 1 whatever it starts.
function(levin_test_load name serial waits processors)
    get_test_property(${name} LABELS labels)
    if("slow" IN_LIST labels) # not at the end, beside an idle core
        set_tests_properties(${name} PROPERTIES COST 10)
    endif()
    if(serial)
        set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    elseif(waits)
        get_property(clock GLOBAL PROPERTY LEVIN_CLOCK)
        if(clock STREQUAL first)
            set(clock second)
        else()
            set(clock first)
        endif()
        set_property(GLOBAL PROPERTY LEVIN_CLOCK ${clock})
        set_tests_properties(${name} PROPERTIES RESOURCE_LOCK clock_${clock} COST 100)
    elseif(processors)
        if(processors GREATER 4)
            set(processors 4)
        endif()
        set_tests_properties(${name} PROPERTIES PROCESSORS ${processors})
    endif()
endfunction()

# levin_test(name SOURCES test_x.c DEPS core LABELS fast TIMEOUT 30 PROCESSORS 4 SERIAL WAITS): one cmocka program, one CTest
# test. Threads of OpenMP teams that wait hold their cores for milliseconds without GOMP_SPINCOUNT, which the command sets at
# its start: on busy cores some tests would take fifty times as long.
function(levin_test name)
    cmake_parse_arguments(ARG "SERIAL;WAITS" "TIMEOUT;PROCESSORS" "SOURCES;DEPS;LIBS;LABELS" ${ARGN})
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 120)
    endif()
    if(LEVIN_SANITIZE)
        math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5") # what the checking costs
    endif()
    add_executable(${name} ${ARG_SOURCES})
    if(LEVIN_SANITIZE STREQUAL thread AND NOT tsan IN_LIST ARG_LABELS) # not among the tests of `make tsan`
        set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
    target_link_libraries(${name} PRIVATE levin_testing ${ARG_LIBS})
    foreach(dep ${ARG_DEPS})
        target_link_libraries(${name} PRIVATE levin_${dep})
    endforeach()
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" SKIP_RETURN_CODE 77
        ENVIRONMENT GOMP_SPINCOUNT=2000)
    levin_test_load(${name} "${ARG_SERIAL}" "${ARG_WAITS}" "${ARG_PROCESSORS}")
endfunction()
