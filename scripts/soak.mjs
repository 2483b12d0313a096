#!/usr/bin/env node
// npm run soak: sets up what is missing, then runs soak.ts with Node 24.
// `-- --minutes 10 [--seed N]` or `-- --redeploys 100`.
import { handOver } from './lib/hand-over.mjs';

await handOver('soak.ts');
