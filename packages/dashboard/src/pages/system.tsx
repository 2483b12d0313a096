import { Page as Head } from '../app/page.tsx';
import { Text } from '../ui/text.tsx';

export const Page = () => (
  <Head title="System">
    <Text>This page is not built yet.</Text>
  </Head>
);
