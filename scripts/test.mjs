#!/usr/bin/env node
// npm test: sets up what is missing, then runs test.ts with Node 24.
import { handOver } from './lib/hand-over.mjs';

await handOver('test.ts');
