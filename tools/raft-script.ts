/**
 * Runs one data-driven Raft script and prints it with the actual output in place:
 *
 *     npm run raft:script -- FILE
 *
 * The first command determines the kind of script: quorum arithmetic (committed, vote), membership
 * (simple, enter-joint, leave-joint) or whole nodes (anything else).
 */
import { readFileSync } from "node:fs";
import { runRaftScript } from "@heddle/raft/script/raft-script";

function main(file: string | undefined): void {
  if (file === undefined) {
    console.error("usage: npm run raft:script -- FILE");
    process.exitCode = 2;
    return;
  }
  try {
    process.stdout.write(runRaftScript(readFileSync(file, "utf8")));
  } catch (error) {
    console.error(
      `raft:script: cannot run ${file}: ${error instanceof Error ? error.message : error}`,
    );
    process.exitCode = 1;
  }
}

if (import.meta.main) main(process.argv[2]);
