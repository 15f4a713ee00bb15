/* Messages of the FFmpeg libraries (video_impl.h). They have one function for all messages of a
 * process; this one keeps what comes while a thread is inside of levin, and leaves the rest to the
 * libraries' own. */
#include "data/video/video_impl.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local int depth;
static _Thread_local char text[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void keep(void *context, int level, const char *format, va_list arguments)
{
    if (depth == 0) {
        av_log_default_callback(context, level, format, arguments);
        return;
    }
    if (level > AV_LOG_ERROR || text[0] != '\0') { /* the first is the cause */
        return;
    }
    int prefix = 0;
    av_log_format_line2(NULL, level, format, arguments, text, sizeof text, &prefix);
    text[strcspn(text, "\n")] = '\0';
}

static void take_over(void)
{
    av_log_set_callback(keep);
}

void lvni_video_log_begin(void)
{
    pthread_once(&once, take_over);
    depth++;
    text[0] = '\0';
}

void lvni_video_log_end(void)
{
    depth--;
}

void lvni_video_log_failed(int code)
{
    if (text[0] == '\0' && av_strerror(code, text, sizeof text) != 0) {
        snprintf(text, sizeof text, "error %d", code);
    }
}

void lvni_video_log_note(const char *why)
{
    snprintf(text, sizeof text, "%s", why);
}

const char *lvni_video_log_text(void)
{
    return text;
}
