/** The quick rows of alerts-suite.ts. `npm run test:faults` runs all of them. */
import { describeAlerts } from './alerts-suite.ts';

describeAlerts('quick');
