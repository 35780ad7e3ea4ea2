import { exitWithParent } from "@heddle/base/process/exit-with-parent";
import { isOfflineCommand, runOfflineCommand } from "./offline/offline-command.ts";

exitWithParent();
const args = process.argv.slice(2);
if (isOfflineCommand(args)) process.exit(await runOfflineCommand(args));
// Loaded only now, since it is the most by far, and nothing of it is needed for stopped masters' files.
const { runMaster } = await import("./run-master.ts");
await runMaster(args);
