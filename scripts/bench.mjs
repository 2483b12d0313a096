#!/usr/bin/env node
// npm run bench: sets up what is missing, then runs the benchmarks by Node 24. `-- data`, `-- deploy`, ... runs one of them.
import { handOver } from './lib/hand-over.mjs';

await handOver('bench.ts');
