import { runCommandLine } from "../command-line.ts";

/** Runs a command in this process, with what it writes; `seen` gets standard error so far, each time. */
export async function runCaptured(
  args: readonly string[],
  seen: (stderr: string) => void = () => {},
): Promise<{ readonly code: number; readonly stdout: string; readonly stderr: string }> {
  const said = { stdout: "", stderr: "" };
  const restoring = (["stdout", "stderr"] as const).map((name) => {
    const stream = process[name];
    const { write } = stream;
    stream.write = (text: string | Uint8Array) => {
      said[name] += text;
      seen(said.stderr);
      return true;
    };
    return () => {
      stream.write = write;
    };
  });
  try {
    return { code: await runCommandLine(args), ...said };
  } finally {
    for (const restore of restoring) restore();
  }
}
