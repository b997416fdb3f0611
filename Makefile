# payflow: build and install with PGXS.
#
# GNU make reads GNUmakefile first, which adds the goals of a checkout (check,
# demo, bench ...) and calls this file for everything else.  Packagers may use
# "make -f Makefile", also from an empty folder (VPATH build).

SRC := $(patsubst %/,%,$(dir $(firstword $(MAKEFILE_LIST))))

EXTENSION = payflow
EXTVERSION := $(shell sed -n "s/^default_version *= *'\([^']*\)'.*/\1/p" $(SRC)/payflow.control)
ifeq ($(EXTVERSION),)
$(error no default_version in $(SRC)/payflow.control)
endif

MODULE_big = payflow
PGFILEDESC = "payflow - payment sessions inside PostgreSQL"
OBJS := $(patsubst $(SRC)/%.c,%.o,$(sort $(wildcard $(SRC)/src/*.c $(SRC)/src/*/*.c)))

# The files of sql/ become the extension script; upgrades are kept as they are.
SCRIPT = payflow--$(EXTVERSION).sql
SCRIPT_PARTS := $(sort $(wildcard $(SRC)/sql/*.sql))
DATA := $(patsubst $(SRC)/%,%,$(sort $(wildcard $(SRC)/sql/upgrades/payflow--*--*.sql)))
DATA_built = $(SCRIPT)

# These make "installcheck" work from the checkout against a running server
# that preloads payflow.  "make check" brings its own server: see test/run.
REGRESS := $(patsubst $(SRC)/test/sql/%.sql,%,$(sort $(wildcard $(SRC)/test/sql/*.sql)))
REGRESS_OPTS = --inputdir=$(srcdir)/test --load-extension=payflow
ISOLATION := $(patsubst $(SRC)/test/specs/%.spec,%,$(sort $(wildcard $(SRC)/test/specs/*.spec)))
ISOLATION_OPTS = --inputdir=$(srcdir)/test --outputdir=. --load-extension=payflow

EXTRA_CLEAN = $(OBJS:.o=.d) payflow--*.sql payflow--*.sql.tmp payflow.list

# The override keeps these also when more is given on the command line.
# The headers of the server are not ours to be warned about.
CLANG_FLAGS = -Wno-unknown-warning-option -Wno-ignored-optimization-argument
override PG_CPPFLAGS += -I$(SRC)/src $(shell pkg-config --cflags libcurl)
override PG_CFLAGS += -isystem $(includedir_server) -Wall -Wextra -Werror \
	$(if $(findstring clang,$(shell $(CC) --version 2>/dev/null)),$(CLANG_FLAGS))
override SHLIB_LINK += $(shell pkg-config --libs libcurl)

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
ifeq ($(PGXS),)
$(error $(PG_CONFIG) does not work: "make deps" installs what is needed, or set PG_CONFIG)
endif
include $(PGXS)

# Out of tree, only the control file is searched for in the source tree. With
# a general VPATH, make would take objects that an earlier build left there.
override VPATH :=
ifneq ($(SRC),.)
vpath payflow.control $(SRC)
endif

$(OBJS): %.o: $(SRC)/%.c $(SRC)/Makefile
	@$(MKDIR_P) $(@D)
	$(CC) $(CFLAGS) $(CPPFLAGS) -MMD -MP -c -o $@ $<

$(OBJS:.o=.bc): %.bc: %.o
	$(COMPILE.c.bc) -o $@ $(SRC)/$*.c

-include $(wildcard $(OBJS:.o=.d))

# What is joined and linked: rewritten when a file was added or removed.
payflow.list: FORCE
	@echo '$(OBJS) $(SCRIPT_PARTS)' | cmp -s - $@ || echo '$(OBJS) $(SCRIPT_PARTS)' > $@

.PHONY: FORCE
FORCE:

$(SCRIPT): $(SCRIPT_PARTS) $(SRC)/payflow.control payflow.list
	cat $(SCRIPT_PARTS) > $@.tmp
	mv $@.tmp $@

$(shlib): payflow.list
