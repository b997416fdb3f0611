"""Names that mean what a test wants: a getaddrinfo() for the server of a lab.

    with tempfile.TemporaryDirectory(prefix="pf") as folder:
        names = Names(folder)
        names.set("slow.test", "hold")
        with Lab(under=names.under) as lab:

It knows the names that end in .test; all others are looked up as ever.
"""

import os
import subprocess

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The file NAMES/node says what a name means: an address, "hold", "fail". */
int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
	char path[512], answer[64] = "";
	FILE *file;

	if (node == NULL || strlen(node) < 5 || strcmp(node + strlen(node) - 5, ".test") != 0)
		return real(node, service, hints, result);
	snprintf(path, sizeof(path), "%s/%s.asked", getenv("NAMES"), node);
	if ((file = fopen(path, "a")) != NULL)
	{
		fputc('x', file);
		fclose(file);
	}
	for (;; poll(NULL, 0, 10))
	{
		snprintf(path, sizeof(path), "%s/%s", getenv("NAMES"), node);
		if ((file = fopen(path, "r")) == NULL)
			return EAI_NONAME;
		if (fscanf(file, "%63s", answer) != 1)
			answer[0] = '\0';
		fclose(file);
		if (strcmp(answer, "fail") == 0)
			return EAI_AGAIN;
		if (strcmp(answer, "hold") != 0 && answer[0] != '\0')
			return real(answer, service, hints, result);
	}
}
"""


class Names:
    """What the server's getaddrinfo() answers."""

    def __init__(self, folder):
        self.folder = folder
        os.chmod(folder, 0o777)
        source, self.library = os.path.join(folder, "names.c"), os.path.join(folder, "names.so")
        with open(source, "w", encoding="utf-8") as file:
            file.write(SHIM)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", self.library, source, "-ldl"], check=True)
        self.under = f"env LD_PRELOAD={self.library} NAMES={folder}"

    def set(self, name, answer):
        """An address, "hold", "fail"; None: no such name."""
        path = os.path.join(self.folder, name)
        if answer is None:
            os.remove(path)
            return
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(answer)
        os.rename(path + ".new", path)

    def asked(self, name):
        """How often."""
        try:
            return os.path.getsize(os.path.join(self.folder, f"{name}.asked"))
        except FileNotFoundError:
            return 0
