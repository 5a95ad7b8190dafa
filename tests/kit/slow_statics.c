/* Preloaded into a program: threads take 30 ms to create a static object of C++ without Python's lock. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

int __cxa_guard_acquire(long *guard)
{
    int (*acquire)(long *) = (int (*)(long *))dlsym(RTLD_NEXT, "__cxa_guard_acquire");
    int (*holds_lock)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
    int creates = acquire(guard);
    if (creates && gettid() != getpid() && holds_lock && !holds_lock())
        usleep(30000);
    return creates;
}
