#!/usr/bin/env node
// npm run check: installs what is missing, then runs check.ts with Node 24.
import { handOver } from './lib/hand-over.mjs';

await handOver('check.ts');
