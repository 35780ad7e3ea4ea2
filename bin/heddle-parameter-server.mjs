#!/usr/bin/env node
import { launch } from "./launch.mjs";

await launch("parameter-server");
