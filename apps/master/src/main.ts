import { exitWithParent } from "@heddle/base/exit-with-parent";
import { startClusterLink } from "./cluster/cluster-link.ts";
import { runMaster } from "./run-master.ts";

exitWithParent();
await runMaster(process.argv.slice(2), startClusterLink);
