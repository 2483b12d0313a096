#!/usr/bin/env node
// npm run dashboard: sets up what is missing, then runs dashboard.ts with Node 24.
import { handOver } from './lib/hand-over.mjs';

await handOver('dashboard.ts');
