"""A private PostgreSQL: its own folder, a socket in it and no port, every commit on disk."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import psycopg


def binaries() -> Path | None:
    """The folder of initdb and postgres, of the newest version there is."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: float(p.parts[-3]))
    on_path = shutil.which("initdb")
    if found:
        return found[-1].parent
    return Path(on_path).resolve().parent if on_path else None


def missing() -> str:
    """Why no PostgreSQL can be started here; empty where it can."""
    if binaries() is None:
        return "no PostgreSQL server here (Debian package postgresql)"
    if os.geteuid() == 0 and "postgres" not in {entry.pw_name for entry in pwd.getpwall()}:
        return "PostgreSQL does not run as root, and there is no user postgres"
    return ""


class Cluster:
    """Started where made; ``kill`` is what a power cut does to the processes, ``start`` recovers."""

    def __init__(self) -> None:
        found = binaries()
        assert found is not None
        self._binaries = found
        self._user = "postgres" if os.geteuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="cuvil-postgresql-"))
        if self._user:
            entry = pwd.getpwnam(self._user)
            os.chown(self.folder, entry.pw_uid, entry.pw_gid)
        self._number = 0
        self._one = ""
        self._process: subprocess.Popen[bytes] | None = None
        # A collation of people as default, so that what sorts by code point does so by its own statement.
        words = ["--auth=trust", "--username=registry", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        words += ["--locale-provider=icu", "--icu-locale=en"]
        subprocess.run(
            [self._binaries / "initdb", "-D", self.folder / "data", *words],
            check=True,
            capture_output=True,
            user=self._user,
            group=self._user,
            extra_groups=[] if self._user else None,
            cwd=self.folder,
        )
        self.start()

    def address(self, database: str) -> str:
        return f"postgresql://registry@/{database}?host={quote(str(self.folder), safe='')}"

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._binaries / "postgres",
                    "-D",
                    self.folder / "data",
                    "-k",
                    self.folder,
                    "-c",
                    "listen_addresses=",
                    "-c",
                    "recovery_init_sync_method=syncfs",
                ],
                stdout=log,
                stderr=log,
                user=self._user,
                group=self._user,
                extra_groups=[] if self._user else None,
                cwd=self.folder,
            )
        until = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.address("postgres")).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > until or self._process.poll() is not None:
                    raise RuntimeError((self.folder / "log").read_text()[-2000:]) from None
                time.sleep(0.05)

    @property
    def stopped(self) -> bool:
        return self._process is None

    def kill(self) -> None:
        """Immediate shutdown: every process of the server ends at once, and nothing is flushed."""
        self._end(signal.SIGQUIT)

    def close(self) -> None:
        self._end(signal.SIGQUIT)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.folder)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=60)
            self._process = None

    def emptied(self) -> str:
        """The address of one database that is emptied each time: hundreds of them would make every recovery slow."""
        if not self._one:
            self._one = self.database()
        with psycopg.connect(self._one, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
            connection.execute(f"ALTER DATABASE {connection.info.dbname} RESET ALL".encode())
        return self._one

    def database(self) -> str:
        """The address of a new, empty database."""
        self._number += 1
        name = f"registry{self._number}"
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.address(name)
