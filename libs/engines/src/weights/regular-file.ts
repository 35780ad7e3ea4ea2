import { constants } from "node:fs";
import { type FileHandle, open, stat } from "node:fs/promises";

/** Absent on Windows, where no file name opens a pipe that blocks. */
const NON_BLOCKING = constants.O_NONBLOCK ?? 0;

/**
 * Opens a regular file for reading; throws on a pipe, a device, a socket or a directory. Without
 * O_NONBLOCK the open of a FIFO occupies a thread of Node's pool forever, and there are four.
 */
export async function openRegular(path: string): Promise<FileHandle> {
  // Checked first: the open alone can have an effect on a device.
  if (!(await stat(path)).isFile()) throw notRegular();
  const file = await open(path, constants.O_RDONLY | NON_BLOCKING);
  try {
    if ((await file.stat()).isFile()) return file;
  } catch (error) {
    await file.close();
    throw error;
  }
  await file.close();
  throw notRegular();
}

function notRegular(): Error {
  return new Error("it is not a regular file");
}
