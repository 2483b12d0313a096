#!/usr/bin/env node
// node scripts/run.mjs NAME [OPTION…]: runs scripts/NAME.ts with Node 24, after setting up what is
// missing. The npm scripts call it (package.json), so it runs on Node 20 with nothing installed.
// lib/help.mjs has what each one does and its options.
import { handOver } from './lib/hand-over.mjs';

const [name, ...options] = process.argv.slice(2);
await handOver(`${name}.ts`, options);
