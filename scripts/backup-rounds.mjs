#!/usr/bin/env node
// npm run test:backup: backups under load, each restored and compared.
// `-- --rounds 3 --engine sqlite`; `-- --plant "copied file"`.
import { handOver } from './lib/hand-over.mjs';

await handOver('backup-rounds.ts');
