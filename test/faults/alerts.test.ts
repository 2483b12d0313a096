/** Every alert of deploy/prometheus fires once (test/e2e/alerts-suite.ts). */
import { describeAlerts } from '../e2e/alerts-suite.ts';

describeAlerts('all');
