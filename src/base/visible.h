/* Backends in files of their own (comm/module.h) call the library's functions. What a header
 * declares between these two can be exported to them; src/private.sym lists what is. Everything
 * else is hidden. */
#ifndef DMUON_BASE_VISIBLE_H
#define DMUON_BASE_VISIBLE_H

#define DMUON_VISIBLE_BEGIN _Pragma("GCC visibility push(default)")
#define DMUON_VISIBLE_END _Pragma("GCC visibility pop")

#endif
