#!/usr/bin/env node
// npm run test:faults: sets up what is missing, then runs the fault suite by Node 24. `-- WORDS` runs the rows whose names hold them.
import { handOver } from './lib/hand-over.mjs';

await handOver('faults.ts');
