import { execFileSync, spawnSync } from "node:child_process";
import {
  closeSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";

/** A small disk in memory, which can be full. Needs root. */
export class MemoryDisk {
  readonly path = mkdtempSync(join(tmpdir(), "heddle-disk-"));

  constructor(mebibytes: number) {
    run("mount", "-t", "tmpfs", "-o", `size=${mebibytes}m`, "heddle-test", this.path);
  }

  /** Fills all free space. */
  fill(): void {
    const file = openSync(this.#filler, "w");
    try {
      for (const size of [65_536, 512, 1]) this.#writeUntilFull(file, Buffer.alloc(size, 1));
    } finally {
      closeSync(file);
    }
  }

  #writeUntilFull(file: number, piece: Buffer): void {
    try {
      for (;;) writeSync(file, piece);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
    }
  }

  makeRoom(): void {
    rmSync(this.#filler, { force: true });
  }

  close(): void {
    run("umount", "--lazy", this.path);
    rmSync(this.path, { recursive: true });
  }

  get #filler(): string {
    return join(this.path, "filler");
  }
}

/** An ext4 disk in a file: a copy of the file is what a power cut would leave. */
export class ImageDisk {
  readonly #folder = mkdtempSync(join(tmpdir(), "heddle-image-"));
  readonly path = join(this.#folder, "mounted");
  #image = join(this.#folder, "image-0");
  #copies = 0;
  #device: string | undefined;

  constructor(mebibytes: number) {
    mkdirSync(this.path);
    writeFileSync(this.#image, "");
    truncateSync(this.#image, mebibytes * 2 ** 20);
    run("mkfs.ext4", "-q", this.#image);
    this.#mount();
  }

  /**
   * Copies what has reached the disk, without data in memory; no process may write meanwhile.
   * Repeats the copy if the file system itself wrote.
   */
  async copy(): Promise<string> {
    const to = join(this.#folder, `image-${++this.#copies}`);
    for (;;) {
      const before = this.#activity();
      await delay(10);
      if (this.#activity() !== before) continue;
      copyFileSync(this.#image, to);
      if (this.#activity() === before) return to;
    }
  }

  /** Replaces the disk by a copy; its processes must have ended. */
  switchTo(image: string): void {
    this.#unmount();
    rmSync(this.#image);
    this.#image = image;
    this.#mount();
  }

  close(): void {
    this.#unmount();
    rmSync(this.#folder, { recursive: true });
  }

  /** Completed and pending requests of the device (the kernel's block/stat). */
  #activity(): string {
    const text = readFileSync(`/sys/block/${basename(this.#device ?? "")}/stat`, "utf8");
    const fields = text.trim().split(/\s+/);
    return [fields[4], fields[8], fields[15]].join();
  }

  #mount(): void {
    this.#device = run("losetup", "--find", "--show", this.#image).trim();
    try {
      run("mount", this.#device, this.path);
    } catch (error) {
      this.#detach();
      throw error;
    }
  }

  #unmount(): void {
    if (!this.#device) return;
    run("umount", this.path);
    this.#detach();
  }

  #detach(): void {
    if (this.#device) run("losetup", "--detach", this.#device);
    this.#device = undefined;
  }
}

/** Compiles a library into a folder that makes a master's fsync fail when preloaded. */
export function compileFailingSync(folder: string): string {
  const source = fileURLToPath(new URL("./failing-sync.c", import.meta.url));
  const library = join(folder, "failing-sync.so");
  run("cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl");
  return library;
}

/** Why this machine does not support a feature of this file; undefined if it does. */
export function whyNot(what: () => { close(): void } | undefined): string | undefined {
  try {
    what()?.close();
    return undefined;
  } catch (error) {
    return String((error as Error).message)
      .trim()
      .split("\n")
      .at(-1);
  }
}

export function canCompile(): undefined {
  if (process.platform !== "linux") throw new Error("LD_PRELOAD is for Linux");
  const { error } = spawnSync("cc", ["--version"], { stdio: "ignore" });
  if (error) throw new Error("there is no C compiler (cc)");
}

function run(program: string, ...args: string[]): string {
  return execFileSync(program, args, { stdio: ["ignore", "pipe", "pipe"] }).toString();
}
