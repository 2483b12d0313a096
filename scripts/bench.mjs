#!/usr/bin/env node
// npm run bench: sets up what is missing, then runs the benchmarks with Node 24. `-- data`,
// `-- deploy` and so on runs one of them.
import { handOver } from './lib/hand-over.mjs';

await handOver('bench.ts');
