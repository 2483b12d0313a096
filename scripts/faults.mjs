#!/usr/bin/env node
// npm run test:faults: sets up what is missing, then runs the fault suite with Node 24. `-- WORDS`
// selects rows by their names.
import { handOver } from './lib/hand-over.mjs';

await handOver('faults.ts');
