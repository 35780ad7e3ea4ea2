import { open, rename, rm } from "node:fs/promises";
import { watchInterrupts } from "../interrupt.ts";
import { drained } from "./terminal.ts";

/** Opens the content; its end throws where the content is not whole. */
type Content = (signal?: AbortSignal) => AsyncIterable<Uint8Array>;

/** Writes the content to standard output. */
export async function printDownload(content: Content): Promise<void> {
  for await (const chunk of content()) {
    process.stdout.write(chunk);
    await drained(process.stdout);
  }
}

/** Writes the content to a file, renamed to the target only when whole. An interrupt ends it. */
export async function saveDownload(target: string, content: Content): Promise<void> {
  const draft = `${target}.partial`;
  const interrupts = watchInterrupts();
  try {
    const file = await open(draft, "w");
    try {
      for await (const chunk of content(interrupts.signal)) await file.write(chunk);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(draft, target);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  } finally {
    interrupts.release();
  }
}
