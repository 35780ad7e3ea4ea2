import { type FileHandle, open } from "node:fs/promises";
import { crc32 } from "node:zlib";
import { AppError } from "@heddle/base/errors";

/**
 * An append-only file of lines `CRC32 JSON`, the sum as eight hexadecimal digits. One line is one
 * synced write, and the next is begun after it: so a crash can spoil the last line and no other.
 */
export class JournalFile {
  readonly #file: FileHandle;
  #size: number;

  constructor(file: FileHandle, size: number) {
    this.#file = file;
    this.#size = size;
  }

  get sizeBytes(): number {
    return this.#size;
  }

  /** Resolves when the value is on the disk. After a rejection the file must not be written again. */
  async append(value: unknown): Promise<void> {
    const line = Buffer.from(encodeLine(value));
    await this.#file.write(line, 0, line.length, this.#size);
    await this.#file.datasync();
    this.#size += line.length;
  }

  close(): Promise<void> {
    return this.#file.close();
  }
}

/**
 * Opens the file, made if missing, and reads its values. A torn last line, which nobody was told to
 * be durable, is cut off; damage before it throws, since what follows cannot be trusted.
 */
export async function openJournalFile(
  path: string,
): Promise<{ file: JournalFile; values: unknown[]; cutBytes: number }> {
  await (await open(path, "a", 0o600)).close();
  const handle = await open(path, "r+");
  try {
    const bytes = await handle.readFile();
    const { values, validBytes } = decodeLines(bytes, path);
    const cutBytes = bytes.length - validBytes;
    if (cutBytes > 0) {
      await handle.truncate(validBytes);
      await handle.datasync();
    }
    return { file: new JournalFile(handle, validBytes), values, cutBytes };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

export function encodeLine(value: unknown): string {
  const json = JSON.stringify(value);
  return `${crc32(json).toString(16).padStart(8, "0")} ${json}\n`;
}

/** The values of all whole lines, and how many bytes they take. */
export function decodeLines(
  bytes: Buffer,
  path: string,
): { values: unknown[]; validBytes: number } {
  const values: unknown[] = [];
  let at = 0;
  while (at < bytes.length) {
    const end = bytes.indexOf(0x0a, at);
    const json = end === -1 ? undefined : checkedJson(bytes.subarray(at, end));
    if (json === undefined) {
      refuseDamage(bytes, at, end, path);
      break;
    }
    values.push(JSON.parse(json));
    at = end + 1;
  }
  return { values, validBytes: at };
}

function checkedJson(line: Buffer): string | undefined {
  const sum = line.toString("latin1", 0, 8);
  const json = line.subarray(9);
  return line[8] === 0x20 && sum === crc32(json).toString(16).padStart(8, "0")
    ? json.toString("utf8")
    : undefined;
}

/** A bad line with good ones after it is no torn write: acknowledged commands would be lost. */
function refuseDamage(bytes: Buffer, at: number, end: number, path: string): void {
  for (let next = end; next !== -1 && next + 1 < bytes.length; ) {
    const following = bytes.indexOf(0x0a, next + 1);
    if (following !== -1 && checkedJson(bytes.subarray(next + 1, following)) !== undefined) {
      const message = `${path} is damaged at byte ${at}: its checksum does not match, and whole records follow. Restore the file from a copy; starting without it would lose acknowledged changes.`;
      throw new AppError("server_error", message);
    }
    next = following;
  }
}
