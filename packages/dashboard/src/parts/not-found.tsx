import { PageLink, Text } from '../ui/text.tsx';
import { PageLayout } from './page-layout.tsx';

export const NotFound = () => (
  <PageLayout title="Not found">
    <Text>Nothing is at this address, or you may not see it. It may have been deleted.</Text>
    <PageLink to="/" size="sm">
      Go to the overview
    </PageLink>
  </PageLayout>
);
