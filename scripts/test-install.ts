/**
 * npm run test:install: installs the artefacts in fresh Debian roots with a real systemd. Needs
 * root. Arguments select test files.
 */
import { conclude, suite } from './lib/suites.ts';

await suite('install', process.argv.slice(2));
conclude();
