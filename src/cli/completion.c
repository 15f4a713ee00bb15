/* levin completion bash | zsh: the script with which a shell completes commands, recipes, keys and
 * their values, made of the registry and the tables of keys. Both shells read the same lists; a
 * shared object is not loaded for them, so that pressing a key runs no code of others. */
#include "cli/cli.h"
#include "cli/sweep.h"
#include "core/error.h"
#include "kernels/kernels.h"
#include "recipes/registry.h"
#include "recipes/user/user_recipe.h"
#include "slurm/slurm_options.h"

#include <stdio.h>
#include <string.h>

/* ---- the lists ---- */

/* Choices of this version: without those that come later. */
static void print_choices(const lvni_core_option *row)
{
    bool any = false;
    for (const char *p = row->choices; p != NULL;) {
        const size_t n = strcspn(p, "|");
        if (row->later == NULL || lvni_core_option_choice_index(row->later, p, n) < 0) {
            printf("%s%.*s", any ? "|" : "", (int)n, p);
            any = true;
        }
        p = p[n] == '|' ? p + n + 1 : NULL;
    }
}

/* KEY=@ (a file), KEY=a|b, KEY= (anything); an alias is ~KEY=... of its row. */
static void print_key(const char *name, bool alias, const lvni_core_option *row)
{
    printf(" %s%s=", alias ? "~" : "", name);
    if (row->type == LVNI_OPT_PATH) {
        fputs("@", stdout);
    } else if (row->type == LVNI_OPT_BOOL) {
        fputs("true|false", stdout);
    } else if (row->type == LVNI_OPT_CHOICE) {
        print_choices(row);
    }
}

static const lvni_core_option *find_row(lvni_core_option_list tables, const char *name)
{
    for (; *tables != NULL; tables++) {
        for (size_t i = 0; i < (*tables)->n; i++) {
            if (strcmp((*tables)->rows[i].name, name) == 0) {
                return &(*tables)->rows[i];
            }
        }
    }
    return NULL;
}

static void print_topic(const char *name, lvni_core_option_list keys)
{
    printf("    %s) echo '", name);
    for (lvni_core_option_list t = keys; *t != NULL; t++) {
        for (size_t i = 0; i < (*t)->n; i++) {
            const lvni_core_option *row = &(*t)->rows[i];
            const bool alias = row->alias_of != NULL;
            const lvni_core_option *of = alias ? find_row(keys, row->alias_of) : row;
            if (of != NULL &&
                ((row->flags | of->flags) & (LVNI_OPT_HIDDEN | LVNI_OPT_LATER)) == 0) {
                print_key(row->name, alias, of);
            }
        }
    }
    fputs("' ;;\n", stdout);
}

static void print_keys(void)
{
    static const lvni_core_option_table *const plan[] = {&lvni_sweep_plan_table, NULL},
                                               *const run[] = {&lvni_cli_sweep_run_table, NULL},
                                               *const show[] = {&lvni_cli_sweep_show_table, NULL};
    const lvni_run_recipe *own = lvni_user_row();
    lvni_cli_topic t;
    fputs("# keys of topics, each with what its value may be\n_levin_keys()\n{\n"
          "    local topic\n    for topic in \"$@\"; do\n    case $topic in\n",
          stdout);
    for (int i = 0; lvni_cli_topic_at(i, &t); i++) {
        print_topic(t.name, t.keys);
    }
    fputs("    # recipes in shared objects: what they all take\n", stdout);
    print_topic("train.so", own->keys);
    print_topic("predict.so", own->predict_keys);
    print_topic("eval.so", own->eval_keys);
    print_topic("export.so", own->export_keys);
    fputs("    # of sub-commands\n", stdout);
    print_topic("sweep.plan", plan);
    print_topic("sweep.run", run);
    print_topic("sweep.show", show);
    print_topic("sweep.submit", lvni_cli_sweep_submit_keys);
    fputs("    esac\n    done\n}\n\n", stdout);
}

static void print_recipes(void)
{
    for (int i = 0; lvni_recipes_at(i) != NULL; i++) {
        printf("%s%s", i == 0 ? "" : " ", lvni_recipes_at(i)->name);
    }
}

/* Of the first argument of a command. */
static void print_words(const lvni_cli_command *c)
{
    lvni_cli_topic t;
    const lvni_recipes_word *w;
    printf("    %s) echo '", c->name);
    if (c->trains || c->uses) {
        print_recipes();
        for (int i = 0; (w = lvni_recipes_word_at(i)) != NULL; i++) {
            if (strcmp(w->command, c->name) == 0) {
                printf(" %s", w->word);
            }
        }
    } else if (c->by_recipe) {
        fputs("train ", stdout);
        print_recipes();
    } else if (strcmp(c->name, "help") == 0) {
        for (int i = 0; i < lvni_cli_n_commands; i++) {
            printf("%s ", lvni_cli_commands[i].name);
        }
        for (int i = 0; lvni_cli_topic_at(i, &t); i++) {
            printf("%s ", strchr(t.name, '.') == NULL ? "" : t.name);
        }
    } else if (strcmp(c->name, "ops") == 0) {
        fputs("check", stdout);
        for (int i = 0; i < LVNI_OP_COUNT; i++) {
            printf(" %s", lvni_kernels_ops[i].name);
        }
    } else {
        fputs(c->words != NULL ? c->words : "", stdout);
    }
    fputs("' ;;\n", stdout);
}

/* Of a trained model: a recipe, or a word, behind the command has keys of its own. */
static void print_topics(void)
{
    lvni_cli_topic t;
    const lvni_recipes_word *w;
    for (int i = 0; lvni_cli_topic_at(i, &t); i++) {
        if (t.command->uses) {
            printf("    %s\\ %s) echo %s ;;\n", t.command->name, lvni_run_typed(t.recipe), t.name);
        }
    }
    for (int i = 0; (w = lvni_recipes_word_at(i)) != NULL; i++) {
        if (w->recipe->argument == NULL) {
            printf("    %s\\ %s) echo %s.%s ;;\n", w->command, w->word, w->command,
                   w->recipe->name);
        }
    }
}

/* Of the options of a job what is not a key: the letters, `train`, and what is behind it. */
static void print_slurm(void)
{
    fputs("_levin_letters() # of the options of a job\n{\n    echo '", stdout);
    for (size_t i = 0; i < lvni_slurm_n_rows; i++) {
        if (lvni_slurm_rows[i].letter != 0) {
            printf("-%c ", lvni_slurm_rows[i].letter);
        }
    }
    fputs("'\n}\n\n"
          "# words of a job or a sweep behind the others of a line; $1: what the word begins with\n"
          "_levin_slurm()\n{\n"
          "    case \"$2 $3\" in\n"
          "    slurm\\ script | slurm\\ submit) ;;\n"
          "    slurm\\ check) [[ $1 != -* ]] || echo --no-ask-cluster; return ;;\n"
          "    sweep\\ train) (($# > 3)) || _levin_words train; return ;;\n"
          "    sweep\\ submit) [[ $1 != -* ]] || { echo --dry-run; _levin_letters; }; return ;;\n"
          "    *) return ;;\n"
          "    esac\n"
          "    if [[ ${@: -1} == train ]]; then\n"
          "        _levin_words train\n"
          "    elif [[ \" $* \" != *\" train \"* && $1 == -* ]]; then\n"
          "        [[ $3 == script ]] || echo '--dry-run --test-only --wait'\n"
          "        _levin_letters\n"
          "    elif [[ \" $* \" != *\" train \"* ]]; then\n"
          "        echo train\n"
          "    fi\n}\n\n",
          stdout);
}

static void print_lists(void)
{
    fputs("_levin_commands='", stdout);
    for (int i = 0; i < lvni_cli_n_commands; i++) {
        printf("%s%s", i == 0 ? "" : " ", lvni_cli_commands[i].name);
    }
    putchar(' ');
    print_recipes(); /* levin pretrain is levin train pretrain */
    fputs("'\n\n# what the first argument of a command may be\n_levin_words()\n{\n    case $1 in\n",
          stdout);
    for (int i = 0; i < lvni_cli_n_commands; i++) {
        print_words(&lvni_cli_commands[i]);
    }
    fputs("    esac\n}\n\n", stdout);
    print_keys();
    fputs("# topic of the words of a line\n"
          "_levin_topic()\n{\n"
          "    case \"$1 $2\" in\n"
          "    train\\ *.so | predict\\ *.so | eval\\ *.so | export\\ *.so) echo \"$1.so\" ;;\n"
          "    plan\\ train)\n"
          "        case $3 in\n"
          "        *.so) echo train.so ;;\n"
          "        *) echo \"train.$3\" ;;\n"
          "        esac\n"
          "        ;;\n"
          "    train\\ *) echo \"train.$2\" ;;\n",
          stdout);
    for (int i = 0; lvni_recipes_at(i) != NULL; i++) {
        const char *name = lvni_recipes_at(i)->name;
        printf("    %s\\ * | plan\\ %s) echo train.%s ;;\n", name, name, name);
    }
    print_topics();
    fputs("    slurm\\ script | slurm\\ submit) # in front of a recipe keys of the job, behind it "
          "the training's\n"
          "        while (($# > 1)) && [[ $1 != train ]]; do shift; done\n"
          "        if (($# > 1)); then echo \"train.$2\"; else echo slurm; fi\n"
          "        ;;\n"
          "    slurm\\ *) ;;\n"
          "    sweep\\ train)\n"
          "        case $3 in\n"
          "        '') ;;\n"
          "        *.so) echo train.so sweep.plan sweep.run ;;\n"
          "        *) echo \"train.$3\" sweep.plan sweep.run ;;\n"
          "        esac\n"
          "        ;;\n"
          "    sweep\\ plan) # in front of `--` its options, behind a recipe the training's keys\n"
          "        while (($# > 1)) && [[ $1 != train ]]; do shift; done\n"
          "        if (($# > 1)); then echo \"train.$2\"; else echo sweep.plan; fi\n"
          "        ;;\n"
          "    sweep\\ run | sweep\\ worker | sweep\\ trial) echo sweep.run ;;\n"
          "    sweep\\ submit) echo sweep.submit slurm ;;\n"
          "    sweep\\ resume) echo sweep.run sweep.show ;;\n"
          "    sweep\\ *) echo sweep.show ;;\n",
          stdout);
    fputs("    *) echo \"$1\" ;;\n    esac\n}\n\n", stdout);
    print_slurm();
}

/* ---- the shells ---- */

static const char bash_part[] =
    "_levin_values() # what the value of key $1 may be, by the list $2; nothing: no such key\n"
    "{\n"
    "    local one\n"
    "    for one in $2; do\n"
    "        one=${one#\\~}\n"
    "        [[ ${one%%=*} != \"$1\" ]] || { echo \"=${one#*=}\"; return; }\n"
    "    done\n"
    "}\n"
    "\n"
    "_levin_files() # $1: what the name begins with, $2: what is put in front\n"
    "{\n"
    "    local file\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    while IFS= read -r file; do COMPREPLY+=(\"$2$file\"); done < <(compgen -f -- \"$1\")\n"
    "}\n"
    "\n"
    "_levin()\n"
    "{\n"
    "    local words=() n=0 i word glue= cur keys key value values front one before\n"
    "    COMPREPLY=()\n"
    "    # bash may cut words at = and :, which belong to a key and its value\n"
    "    for ((i = 1; i <= COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if ((n > 0)) && [[ $glue || $word == [=:]* ]]; then\n"
    "            words[n - 1]+=$word\n"
    "        else\n"
    "            words[n++]=$word\n"
    "        fi\n"
    "        glue=; [[ $word != *[=:] ]] || glue=1\n"
    "    done\n"
    "    cur=${words[n - 1]}\n"
    "    if ((n == 1)); then\n"
    "        COMPREPLY=($(compgen -W \"$_levin_commands\" -- \"$cur\"))\n"
    "        return\n"
    "    fi\n"
    "    keys=$(_levin_keys $(_levin_topic \"${words[@]:0:n - 1}\"))\n"
    "    if [[ $cur == *=* ]]; then\n"
    "        key=${cur%%=*} value=${cur#*=} front=$key=\n"
    "        [[ $COMP_WORDBREAKS != *=* ]] || front=\n"
    "    else\n"
    "        before=${words[n - 2]}\n"
    "        [[ $before != --* || $before == *=* ]] || key=$before value=$cur front=\n"
    "    fi\n"
    "    if [[ $key ]]; then\n"
    "        key=${key#--} && key=${key//-/_}\n"
    "        values=$(_levin_values \"$key\" \"$keys\")\n"
    "    fi\n"
    "    if [[ $values == =@ ]]; then\n"
    "        _levin_files \"$value\" \"$front\"\n"
    "    elif [[ $values && ($cur == *=* || $values != '=true|false') ]]; then\n"
    "        values=${values#=}\n"
    "        for one in ${values//|/ }; do\n"
    "            [[ $one != \"$value\"* ]] || COMPREPLY+=(\"$front$one\")\n"
    "        done\n"
    "    elif [[ $cur != *=* ]]; then\n"
    "        if ((n == 2)) || [[ ${words[0]} == plan && $n == 3 ]]; then\n"
    "            one=${words[n - 2]}\n"
    "            COMPREPLY=($(compgen -W \"$(_levin_words \"$one\")\" -- \"$cur\"))\n"
    "            case $one in\n"
    "            train | predict | eval | export) _levin_files \"$cur\" '' ;;\n"
    "            esac\n"
    "        fi\n"
    "        case ${words[0]} in\n"
    "        cc | ckpt | launch | report) _levin_files \"$cur\" '' ;;\n"
    "        sweep)\n"
    "            if ((n == 3)) && [[ ${words[1]} != plan ]]; then _levin_files \"$cur\" ''; fi\n"
    "            ;;\n"
    "        esac\n"
    "        one=$(_levin_slurm \"$cur\" \"${words[@]:0:n - 1}\")\n"
    "        COMPREPLY+=($(compgen -W \"$one\" -- \"$cur\"))\n"
    "        [[ \"${words[*]:0:2}\" != 'slurm check' ]] || _levin_files \"$cur\" ''\n"
    "        front=; [[ $cur != --* ]] || front=--\n"
    "        for one in $keys; do\n"
    "            [[ $one != \\~* || $cur ]] || continue\n"
    "            one=${one#\\~} && one=$front${one%%=*}=\n"
    "            [[ $one != \"$cur\"* ]] || COMPREPLY+=(\"$one\")\n"
    "        done\n"
    "        [[ ${COMPREPLY[*]} != *= ]] || compopt -o nospace 2>/dev/null\n"
    "    fi\n"
    "}\n"
    "\n"
    "complete -F _levin levin\n";

static const char zsh_part[] =
    "_levin()\n"
    "{\n"
    "    local cur=$words[CURRENT] one value found=1\n"
    "    local -a keys names\n"
    "    if ((CURRENT == 2)); then\n"
    "        compadd -- ${=_levin_commands}\n"
    "        return\n"
    "    fi\n"
    "    keys=(${=\"$(_levin_keys $(_levin_topic ${words[2,CURRENT-1]}))\"})\n"
    "    if [[ $cur == *=* ]]; then\n"
    "        compset -P '*='\n"
    "        one=${${cur%%=*}#--}\n"
    "        for value in $keys; do\n"
    "            value=${value#\\~}\n"
    "            [[ ${value%%=*} == ${one//-/_} ]] || continue\n"
    "            value=${value#*=}\n"
    "            if [[ $value == @ ]]; then _files; else compadd -- ${(s:|:)value}; fi\n"
    "            return\n"
    "        done\n"
    "        return 1\n"
    "    fi\n"
    "    if ((CURRENT == 3)) || [[ $words[2] == plan && $CURRENT == 4 ]]; then\n"
    "        compadd -- ${=\"$(_levin_words $words[CURRENT-1])\"} && found=0\n"
    "        case $words[CURRENT-1] in\n"
    "        train | predict | eval | export) _files -g '*.so' && found=0 ;;\n"
    "        esac\n"
    "    fi\n"
    "    case $words[2] in\n"
    "    cc | ckpt | launch | report) _files && found=0 ;;\n"
    "    sweep) ((CURRENT != 4)) || [[ $words[3] == plan ]] || { _files && found=0; } ;;\n"
    "    esac\n"
    "    compadd -- ${=\"$(_levin_slurm \"$cur\" ${words[2,CURRENT-1]})\"} && found=0\n"
    "    if [[ \"$words[2] $words[3]\" == 'slurm check' ]]; then _files && found=0; fi\n"
    "    for one in $keys; do\n"
    "        [[ $one == \\~* && -z $cur ]] || names+=(${${one#\\~}%%=*})\n"
    "    done\n"
    "    if [[ $cur == --* ]]; then names=(--$^names); fi\n"
    "    compadd -S '=' -- $names && found=0\n"
    "    return found\n"
    "}\n"
    "\n"
    "_levin \"$@\"\n";

int lvni_cli_cmd_completion(int n, const char *const *args)
{
    const char *shell = n == 1 ? args[0] : "";
    const bool bash = strcmp(shell, "bash") == 0;
    if (!bash && strcmp(shell, "zsh") != 0) {
        fputs("error: of which shell? bash and zsh are known\n", stderr);
        return lvni_cli_command_misused("completion");
    }
    printf("%s# completion of levin: what `levin completion %s` prints\n",
           bash ? "" : "#compdef levin\n", shell);
    print_lists();
    fputs(bash ? bash_part : zsh_part, stdout);
    return LVNI_EXIT_OK;
}
