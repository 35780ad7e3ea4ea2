#!/usr/bin/env node
// Makes a plugin of the template: `npm create heddle-plugin FOLDER` in a clone of Heddle.
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const TEMPLATE = fileURLToPath(new URL("./template", import.meta.url));
const HEDDLE = dirname(dirname(dirname(TEMPLATE)));
const NAME = /^[a-z][a-z0-9-]{0,62}$/;

const [place, ...more] = process.argv.slice(2);
if (place === undefined || place.startsWith("-") || more.length > 0) {
  fail("Usage: npm create heddle-plugin FOLDER\nThe plugin has the folder's name.");
}
// npm runs this in the folder of the clone, and says where it was called.
const folder = resolve(process.env["INIT_CWD"] ?? process.cwd(), place);
const name = basename(folder);
if (!NAME.test(name)) {
  fail(`${name} is no name of a plugin: give a folder of small letters, digits and -, as greeter`);
}
if (existsSync(folder) && readdirSync(folder).length > 0) {
  fail(`${folder} is not empty: give a new folder`);
}
mkdirSync(folder, { recursive: true });
for (const file of readdirSync(TEMPLATE)) {
  const text = readFileSync(join(TEMPLATE, file), "utf8");
  const made = text.replaceAll("PLUGIN_NAME", name).replaceAll("HEDDLE_FOLDER", HEDDLE);
  writeFileSync(join(folder, file.replace(/\.template$/, "")), made);
}
process.stdout.write(
  `Made the plugin ${name} in ${folder}. Next:\n  cd ${folder}\n  npm install\n  npm test\n`,
);

/** @param {string} message @returns {never} */
function fail(message) {
  process.stderr.write(`${message}\n`);
  process.exit(2);
}
