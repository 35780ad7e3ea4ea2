import koffi from "koffi";
import type { Bindings } from "./bindings.ts";

/** ggml_log_level: warnings and errors are worth keeping. */
const WARN_LEVEL = 3;
const CONTINUATION_LEVEL = 5;
const MAX_LINES = 8;

/** The last warnings and errors of the native library. */
interface NativeLog {
  lines(): readonly string[];
  /**
   * Sends the log nowhere from now on. A callback into this thread must not stay registered: a call
   * from another thread would wait for this one's event loop, which never turns.
   */
  silence(): void;
}

/** Keeps the last warning and error lines that the library writes in this thread. */
export function captureLog(bindings: Bindings): NativeLog {
  const lines: string[] = [];
  let keeping = false;
  const keep = (level: number, text: string): void => {
    if (level !== CONTINUATION_LEVEL) keeping = level >= WARN_LEVEL;
    const line = text.trim();
    if (!keeping || line === "") return;
    lines.push(line);
    if (lines.length > MAX_LINES) lines.shift();
  };
  const prototype = koffi.pointer(koffi.proto("void heddle_log(int level, str text, void* data)"));
  const callback = koffi.register(keep, prototype);
  bindings.llama.log_set(callback, null);
  return {
    lines: () => lines,
    silence: () => {
      bindings.llama.log_set(bindings.silentLog, null);
      koffi.unregister(callback);
    },
  };
}
