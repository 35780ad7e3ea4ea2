// `npm start`: sets up what a fresh clone lacks, then runs `heddle up` with the given arguments.
import { join } from "node:path";
import { chooseNode, keepCompiledModules, runChild } from "../bin/launch.mjs";
import { childEnvironment, ROOT, setUp } from "./setup.mjs";

keepCompiledModules();
setUp();
const main = join(ROOT, "packaged/apps/cli/dist/main.js");
runChild(chooseNode(), [main, "up", ...process.argv.slice(2)], childEnvironment());
