/* The commands: each takes the words behind its name and returns an exit code. */
#ifndef LEVIN_CLI_CLI_H
#define LEVIN_CLI_CLI_H

int lvni_cmd_train(int n, const char *const *words);
int lvni_cmd_plan(int n, const char *const *words);
int lvni_cmd_predict(int n, const char *const *words);
int lvni_cmd_eval(int n, const char *const *words);
int lvni_cmd_export(int n, const char *const *words);
int lvni_cmd_ckpt(int n, const char *const *words);
int lvni_cmd_ops(int n, const char *const *words);
int lvni_cmd_help(int n, const char *const *words);

#endif
