#!/usr/bin/env node
// npm run test:install: sets up what is missing, then runs test-install.ts with Node 24.
import { handOver } from './lib/hand-over.mjs';

await handOver('test-install.ts');
